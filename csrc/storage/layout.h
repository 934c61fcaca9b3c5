// Format v1, byte by byte: what every file of a store starts with and how its bytes are checked.
// docs/format.md says the same in prose; the two change together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "io/file.h"

namespace gz {

inline constexpr std::uint32_t kFormatVersion = 1;
inline constexpr std::uint32_t kByteOrderMark = 0x0A0B0C0D;
inline constexpr std::uint64_t kHeaderBytes = 4096;
inline constexpr std::uint64_t kSectionAlignment = 4096;
inline constexpr std::uint64_t kBlockBytes = 1ULL << 20;
inline constexpr int kMaxDims = 8;

// Element types, in the numbers the format gives them.
struct DType {
  std::uint32_t code;
  std::string_view name;  // torch's name
  std::uint32_t item_bytes;
};
const DType* find_dtype(std::uint32_t code) noexcept;
// Raises std::invalid_argument, naming `what` has it, for one that no file has.
const DType& dtype_named(std::string_view name, const std::string& what = "dtype");

// The first 64 bytes of every file, and the checksum at the header's end.
struct CommonHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t byte_order;
  std::uint64_t file_bytes;
  std::uint32_t header_bytes;
  std::uint32_t section_alignment;
  std::uint64_t block_bytes;
  std::uint64_t checksums_offset;
  std::uint64_t num_blocks;
  std::uint64_t checksums_hash;
};
static_assert(sizeof(CommonHeader) == 64);

// A `.gd` file: one column of rows.
struct ColumnHeader {
  static constexpr char kMagic[8] = {'\x89', 'G', 'Z', 'D', '\r', '\n', '\x1a', '\n'};
  CommonHeader common;
  std::uint32_t dtype;
  std::uint32_t encoding;  // EncodingFacts::number of what stands for float32, else 0
  std::uint32_t num_dims;
  std::uint32_t reserved;
  std::uint64_t shape[kMaxDims];
  std::uint64_t row_bytes;
  std::uint64_t row_stride;
  std::uint64_t data_offset;
  std::uint64_t data_bytes;
  // Two arrays of float32, one number for each item of a row; 0 where the encoding has none.
  std::uint64_t scale_offset;
  std::uint64_t zero_point_offset;

  std::uint64_t num_rows() const noexcept { return num_dims == 0 ? 1 : shape[0]; }
};

// A `.gl` file: the in-neighbours of every destination node (CSC).
struct TopologyHeader {
  static constexpr char kMagic[8] = {'\x89', 'G', 'Z', 'L', '\r', '\n', '\x1a', '\n'};
  CommonHeader common;
  std::uint64_t num_src;
  std::uint64_t num_dst;
  std::uint64_t num_edges;
  std::uint32_t index_bytes;
  std::uint32_t flags;  // 0 in v1
  std::uint64_t indptr_offset;
  std::uint64_t indptr_bytes;
  std::uint64_t indices_offset;
  std::uint64_t indices_bytes;
};

std::uint64_t align_up(std::uint64_t bytes) noexcept;

// a * b and a + b, or FormatError(path, field) when the result does not fit 64 bits.
std::uint64_t checked_mul(std::uint64_t a, std::uint64_t b, const std::string& path,
                          const char* field);
std::uint64_t checked_add(std::uint64_t a, std::uint64_t b, const std::string& path,
                          const char* field);

// Throws FormatError unless found == expected.
void expect(const std::string& path, const char* field, std::uint64_t found,
            std::uint64_t expected);

// Throws FormatError unless the file still has the size that it had when it was opened, or whatever
// `since` says.
void expect_size(const File& file, std::uint64_t expected, const char* since = "opened");

// Reads `size` bytes at `offset`; raises FormatError for `field` where the file ends before.
void read_whole(const File& file, const char* field, void* to, std::size_t size,
                std::uint64_t offset);

// Reads the 4 KiB header into `header` (a struct that starts with CommonHeader) and checks what all
// files share: size, magic, byte order, version, header checksum, and that the block checksums lie
// where they must. Touches no data page.
void read_header(const File& file, const char (&magic)[8], void* header, std::size_t header_size);

// Where the file's first bytes go: a file that write_header() has not finished has no magic.
void write_header(File& file, void* header, std::size_t header_size);

}  // namespace gz
