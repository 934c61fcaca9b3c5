#include "storage/layout.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/errors.h"
#include "base/xxh64.h"

namespace gz {
namespace {

static_assert(std::endian::native == std::endian::little,
              "format v1 is little-endian and read in place");

constexpr std::array kDTypes = {
    // by code, from 1 on
    DType{1, "bool", 1},
    DType{2, "uint8", 1},
    DType{3, "int8", 1},
    DType{4, "int16", 2},
    DType{5, "int32", 4},
    DType{6, "int64", 8},
    DType{7, "float16", 2},
    DType{8, "bfloat16", 2},
    DType{9, "float32", 4},
    DType{10, "float64", 8},
    DType{11, "complex64", 8},
    DType{12, "complex128", 16},
    DType{13, "uint16", 2},
    DType{14, "uint32", 4},
    DType{15, "uint64", 8},
    DType{16, "complex32", 4},
    DType{17, "float8_e4m3fn", 1},
    DType{18, "float8_e5m2", 1},
    DType{19, "float8_e4m3fnuz", 1},
    DType{20, "float8_e5m2fnuz", 1},
    DType{21, "float8_e8m0fnu", 1},
};

constexpr std::size_t kHashAt = kHeaderBytes - 8;

std::string quoted_magic(const char* magic) {
  std::string text = "bytes";
  char byte[4];
  for (int i = 0; i < 8; ++i) {
    std::snprintf(byte, sizeof byte, " %02x", static_cast<unsigned char>(magic[i]));
    text += byte;
  }
  return text;
}

}  // namespace

const DType* find_dtype(std::uint32_t code) noexcept {
  return code - 1 < kDTypes.size() ? &kDTypes[code - 1] : nullptr;
}

const DType& dtype_named(std::string_view name, const std::string& what) {
  const auto found = std::ranges::find(kDTypes, name, &DType::name);
  if (found != kDTypes.end()) return *found;
  throw invalid(what, ": found '", name, "', expected one format v1 stores");
}

std::uint64_t align_up(std::uint64_t bytes) noexcept {
  return (bytes + kSectionAlignment - 1) / kSectionAlignment * kSectionAlignment;
}

std::uint64_t checked_mul(std::uint64_t a, std::uint64_t b, const std::string& path,
                          const char* field) {
  std::uint64_t product;
  if (__builtin_mul_overflow(a, b, &product) || product > INT64_MAX) {
    throw FormatError(path, field, text_of(a, " x ", b, " bytes"), "a size below 2^63");
  }
  return product;
}

std::uint64_t checked_add(std::uint64_t a, std::uint64_t b, const std::string& path,
                          const char* field) {
  std::uint64_t sum;
  if (__builtin_add_overflow(a, b, &sum) || sum > INT64_MAX) {
    throw FormatError(path, field, text_of(a, " + ", b, " bytes"), "a size below 2^63");
  }
  return sum;
}

void expect(const std::string& path, const char* field, std::uint64_t found,
            std::uint64_t expected) {
  if (found != expected) {
    throw FormatError(path, field, found, expected);
  }
}

void expect_size(const File& file, std::uint64_t expected, const char* since) {
  const std::uint64_t found = file.size();
  if (found == expected) return;
  throw FormatError(file.path(), "file size", text_of(found, " bytes"), expected,
                    " bytes, as when it was ", since);
}

void read_whole(const File& file, const char* field, void* to, std::size_t size,
                std::uint64_t offset) {
  if (file.read_at(to, size, offset) == size) return;
  throw FormatError(file.path(), field, "end of file", size, " bytes at offset ", offset);
}

void read_header(const File& file, const char (&magic)[8], void* header, std::size_t header_size) {
  const std::string& path = file.path();
  unsigned char raw[kHeaderBytes];
  const std::uint64_t file_bytes = file.size();
  if (file.read_at(raw, sizeof raw, 0) != sizeof raw) {
    throw FormatError(path, "file size", text_of(file_bytes, " bytes"), "at least a header of ",
                      kHeaderBytes, " bytes");
  }
  CommonHeader common;
  std::memcpy(&common, raw, sizeof common);
  if (std::memcmp(common.magic, magic, sizeof common.magic) != 0) {
    throw FormatError(path, "magic", quoted_magic(common.magic), quoted_magic(magic));
  }
  if (common.byte_order != kByteOrderMark) {
    throw FormatError(path, "byte_order", hex(common.byte_order), hex(kByteOrderMark),
                      " (little-endian)");
  }
  if (common.version != kFormatVersion) {
    throw FormatError(path, "version", common.version, kFormatVersion,
                      "; the file was written by another release: convert again or upgrade");
  }
  std::uint64_t hash;
  std::memcpy(&hash, raw + kHashAt, sizeof hash);
  if (const std::uint64_t actual = xxh64(raw, kHashAt); hash != actual) {
    throw FormatError(path, "header_hash", hex(hash), hex(actual), "; the header is damaged");
  }
  expect(path, "header_bytes", common.header_bytes, kHeaderBytes);
  expect(path, "section_alignment", common.section_alignment, kSectionAlignment);
  expect(path, "block_bytes", common.block_bytes, kBlockBytes);
  if (common.file_bytes != file_bytes) {
    throw FormatError(path, "file size", text_of(file_bytes, " bytes"), common.file_bytes,
                      " bytes (file_bytes in its header)");
  }
  if (common.checksums_offset < kHeaderBytes || common.checksums_offset > file_bytes ||
      common.checksums_offset % kSectionAlignment != 0) {
    throw FormatError(path, "checksums_offset", common.checksums_offset,
                      "a multiple of 4096 inside the file of ", file_bytes, " bytes");
  }
  const std::uint64_t covered = common.checksums_offset - kHeaderBytes;
  expect(path, "num_blocks", common.num_blocks, (covered + kBlockBytes - 1) / kBlockBytes);
  expect(path, "file_bytes", common.file_bytes, common.checksums_offset + 8 * common.num_blocks);
  std::memcpy(header, raw, header_size);
}

void write_header(File& file, void* header, std::size_t header_size) {
  unsigned char raw[kHeaderBytes] = {};
  std::memcpy(raw, header, header_size);
  const std::uint64_t hash = xxh64(raw, kHashAt);
  std::memcpy(raw + kHashAt, &hash, sizeof hash);
  file.write_at(raw, sizeof raw, 0);
}

}  // namespace gz
