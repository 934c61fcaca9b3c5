// A `.gd` file whose rows are written in any order, by several runs of a program if need be, before
// it becomes a column.
//
// Until then the file has its final size, its rows and the checksums known so far where they
// belong, and no header. A second file has a bit for each row that is durable. docs/format.md says
// how the two are told from a store's files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/range_bits.h"
#include "io/file.h"
#include "storage/encoding.h"
#include "storage/layout.h"

namespace gz {

// What both files are to hold.
struct DraftLayout {
  DraftLayout(const std::string& path, const std::string& rows_path, const DType& dtype,
              std::span<const std::uint64_t> shape, std::optional<Encoding> encoding);

  std::string path, rows_path;
  ColumnHeader header;
  std::uint64_t num_rows;
  std::uint64_t checksums_offset;
  std::uint64_t num_blocks;
};

// Memory: two bits for each row, 8 bytes for each block, and one block. Thread safety: all calls
// may come from any thread; they take turns.
class ColumnDraft {
 public:
  // Creates both files, which must not exist. REQUIRES one dimension or more; no scales.
  static std::unique_ptr<ColumnDraft> create(const DraftLayout& layout);
  // Goes on with two files of the same layout. Raises FormatError if their sizes are others.
  static std::unique_ptr<ColumnDraft> resume(const DraftLayout& layout);

  // Rows [first, first + n) as they are stored, C-contiguous; `size` bytes. Rows that were written
  // before are replaced; those of them that were durable are not until the next commit(). Checksums
  // are made in passing where a block is written front to back by calls that continue each other.
  //
  // Raises std::out_of_range; std::invalid_argument if `size` is no multiple of a row; OsError,
  // after which rows that were not durable may have to be written again: is_written() says which.
  void write(std::uint64_t first, const void* rows, std::size_t size);
  // The same for rows in any places; of equal places the last counts.
  void put(std::span<const std::int64_t> places, const void* rows, std::size_t size);
  // Makes durable what was written.
  void commit();
  // Makes all of it a column: checksums, then the header. REQUIRES that every row is written.
  void finish();

  // Rows [0, durable_front()) are durable.
  std::uint64_t durable_front() const;
  // Whether rows [begin, end) are written.
  bool is_written(std::uint64_t begin, std::uint64_t end) const;
  // The first rows that are not written, [begin, end); num_rows twice if all are.
  std::pair<std::uint64_t, std::uint64_t> first_missing() const;
  std::uint64_t num_rows() const noexcept { return layout_.num_rows; }
  std::uint64_t row_bytes() const noexcept { return layout_.header.row_bytes; }

 private:
  ColumnDraft(const DraftLayout& layout, File file, File rows_file);

  std::uint64_t checked_count(std::size_t size) const;
  void write_locked(std::uint64_t first, const unsigned char* rows, std::uint64_t count);
  // Takes durable rows back before they are replaced. Their checksums may stay: resume() takes none
  // of a block whose rows are not all durable.
  void demote(std::uint64_t first, std::uint64_t end);
  // Starts a run of bytes at `offset`, counted from the first row.
  void start_run(std::uint64_t offset);
  void append(const unsigned char* data, std::size_t size);
  void begin_block();
  void complete_block(std::uint64_t size);
  void flush();
  void write_body(const unsigned char* data, std::size_t size, std::uint64_t offset);
  // Keeps the amount of what waits to be written out small.
  void pace(std::uint64_t begin, std::uint64_t end);
  void drop_buffer() noexcept;
  void drop_uncommitted() noexcept;
  void commit_locked();
  void write_checksums();
  // Words [first, last) of which rows are durable, to the device.
  void write_rows(std::span<const std::uint64_t> words, std::uint64_t first, std::uint64_t last);
  std::uint64_t block_bytes(std::uint64_t block) const noexcept;
  std::pair<std::uint64_t, std::uint64_t> rows_of(std::uint64_t block) const noexcept;
  void hash_missing_blocks();

  struct Piece {
    std::uint64_t begin = 0, end = 0, bytes = 0;
  };

  const DraftLayout layout_;
  mutable std::mutex mutex_;
  File file_, rows_file_;
  RangeBits written_, durable_;
  // By block; 0 where it is not known. A block whose checksum is 0 is read again by finish().
  std::vector<std::uint64_t> hashes_;
  std::uint64_t changed_begin_, changed_end_ = 0;  // hashes that the file does not have

  // The block that is being filled: bytes [start_, filled_) are of this run, those from flushed_ on
  // not in the file yet.
  std::unique_ptr<unsigned char[]> buffer_;
  std::uint64_t block_ = 0;
  std::size_t start_ = 0, flushed_ = 0, filled_ = 0;

  Piece piece_;               // written, and not asked to be written out
  std::deque<Piece> pieces_;  // being written out
};

}  // namespace gz
