// Writes the body of a store file front to back and keeps a checksum per block as it goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/file.h"
#include "storage/layout.h"

namespace gz {

// Thread safety: none; one writer, one thread.
class BlockWriter {
 public:
  // Begins at `offset` of a new file, before which others write all that is in front.
  explicit BlockWriter(std::shared_ptr<File> file, std::uint64_t offset = kHeaderBytes);

  void append(const void* data, std::size_t size);
  // Zero bytes up to the next section boundary.
  void align();
  // Offset in the file at which the next byte goes.
  std::uint64_t offset() const noexcept { return kHeaderBytes + written_; }

  // Reads what others have written, writes the checksum table, completes header->common, writes the
  // header and syncs. `header` starts with a CommonHeader whose magic is set. Nothing may be
  // appended afterwards.
  void finish(void* header, std::size_t header_size);

  const std::string& path() const noexcept { return file_->path(); }

 private:
  void flush();

  std::shared_ptr<File> file_;
  std::unique_ptr<unsigned char[]> block_;
  std::size_t filled_ = 0;        // bytes of block_ that are set, from its front
  std::uint64_t written_ = 0;     // bytes behind the header up to where the next one goes
  std::size_t missing_ = 0;       // bytes at the front of block_ that others write
  std::uint64_t num_before_ = 0;  // blocks that others write, if only in part
  std::vector<std::uint64_t> hashes_;
};

// Completes a file whose body is written up to `checksums_offset`: writes the checksum table,
// completes the header's common fields, writes the header last, and syncs. `header` starts with a
// CommonHeader whose magic is set.
void finish_file(File& file, std::uint64_t checksums_offset, std::span<const std::uint64_t> hashes,
                 void* header, std::size_t header_size);

// Checksums of `count` blocks of a body that ends at `end`, from number `first` on, by several
// threads. Raises FormatError where the file ends before.
std::vector<std::uint64_t> hash_blocks(const File& file, std::uint64_t first, std::uint64_t count,
                                       std::uint64_t end);

// One block whose bytes do not match their checksum. `block` is -1 for the checksum table itself.
struct BadBlock {
  std::int64_t block;
  std::uint64_t offset;
  std::uint64_t size;
  std::string detail;
};

// Reads blocks [first, first + count) of a store file by system call (no page is mapped) and
// returns those that are wrong. Raises FormatError for a bad header, OsError for a failed read.
std::vector<BadBlock> verify_blocks(const std::string& path, std::uint64_t first,
                                    std::uint64_t count);
// How many blocks the file has; also checks its header and its checksum table.
std::uint64_t count_blocks(const std::string& path, std::vector<BadBlock>* bad);

}  // namespace gz
