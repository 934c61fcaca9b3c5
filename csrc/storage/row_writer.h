// Writes a column's rows in any order, larger than memory, from several threads.
//
// The file has its final size from the beginning, rows where they belong, and no header: readers
// take it for no column until finish() has read it once for its checksums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/file.h"
#include "storage/encoding.h"
#include "storage/layout.h"

namespace gz {

// Memory: a bit for each row, and a block for each thread. Thread safety: write() and put() may
// come from any thread at once, each for rows of its own; finish() comes alone.
class RowWriter {
 public:
  // Creates the file, which must not exist. REQUIRES one dimension or more; no scales.
  RowWriter(const std::string& path, const DType& dtype, std::span<const std::uint64_t> shape,
            std::optional<Encoding> encoding);

  // Rows [first, first + n) as they are stored, C-contiguous. Replaces those that were written
  // before. Raises std::out_of_range; std::invalid_argument for parts of a row; OsError, after
  // which these rows count as not written.
  void write(std::uint64_t first, std::span<const std::byte> rows);
  // Like write(), for rows in any places; of equal places the last counts.
  void put(std::span<const std::int64_t> places, std::span<const std::byte> rows);
  // Makes a column of the file, on the device when it returns: checksums, then the header. May be
  // called again after more rows. Raises std::invalid_argument if a row is missing; OsError, after
  // which no row counts as written if the device may have lost some.
  void finish();

  // The first rows that are not written, [begin, end); num_rows twice if all are.
  std::pair<std::uint64_t, std::uint64_t> first_missing() const;
  std::uint64_t row_bytes() const noexcept { return header_.row_bytes; }

 private:
  std::uint64_t checked_count(std::size_t size) const;
  void write_run(std::uint64_t first, const std::byte* rows, std::uint64_t count);
  // Notes of the rows [begin, end) whether they are written.
  void note(std::uint64_t begin, std::uint64_t end, bool is_written);

  ColumnHeader header_;
  std::uint64_t num_rows_, checksums_offset_, num_blocks_;
  File file_;
  mutable std::mutex mutex_;   // of written_
  std::vector<bool> written_;  // [row]
};

}  // namespace gz
