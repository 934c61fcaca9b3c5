// Which stretches of a file to read for the rows that several batches miss, and where every row
// goes from there: sorted, united, merged across gaps that are cheaper to read than to skip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "arrays/buffer.h"

namespace gz {

// Rows at equal distances in a file.
struct RowLayout {
  std::uint64_t data_offset = 0;  // of row 0
  std::int64_t num_rows = 0;
  std::int64_t row_bytes = 0;
  std::int64_t row_stride = 0;   // bytes from one row to the next
  std::uint64_t file_bytes = 0;  // reads are rounded up to the alignment, but not past this
};

// Rows that one batch wants: rows[i] goes to place positions[i] of its destination. Rows may
// repeat, in any order.
struct RowRequest {
  std::span<const std::int64_t> rows;
  std::span<const std::int64_t> positions;  // empty: 0, 1, 2 …
  std::byte* out = nullptr;
  std::int64_t first = 0;  // number of the file's first row, as `rows` count them
};

struct ReadLimits {
  std::uint64_t merge_gap = 16 << 10;  // a gap of at most this many bytes is read, not skipped
  std::uint64_t max_read = 512 << 10;  // raised to hold one row where rows are larger
  std::uint64_t alignment = 1;         // of offset and size; a power of two
};

struct PlannedRead {
  std::uint64_t offset;
  std::uint64_t size;
  std::int64_t first, last;  // the targets [first, last) lie in it
};

// One row on its way to one place.
struct RowTarget {
  std::int64_t row;
  std::int64_t request;
  std::int64_t index;  // into the request's rows
};

// Invariants: reads ascend and, where rows do not overlap, so do they; every target of every
// request is in exactly one read (rows of no bytes are in none). Memory: 16 bytes a row asked for.
// Thread safety: build() alone changes it.
class ReadPlan {
 public:
  // Replaces the plan, keeping the memory. Raises std::out_of_range naming the first row that is
  // not there, and std::invalid_argument when rows and requests are too many for 64 bits together.
  void build(const RowLayout& layout, std::span<const RowRequest> requests,
             const ReadLimits& limits);

  std::span<const PlannedRead> reads() const noexcept { return reads_; }
  std::int64_t num_targets() const noexcept { return keys_.size(); }
  // Targets ascend by row; those of one row by request and index.
  RowTarget target(std::int64_t i) const noexcept {
    const std::uint64_t key = keys_[i];
    return {static_cast<std::int64_t>(key >> row_shift_),
            static_cast<std::int64_t>(key >> request_shift_ & request_mask_),
            static_cast<std::int64_t>(key & index_mask_)};
  }
  std::int64_t unique_rows() const noexcept { return unique_rows_; }
  std::uint64_t bytes() const noexcept { return bytes_; }

  // The largest read a plan of this layout may hold.
  static std::uint64_t largest_read(const RowLayout& layout, const ReadLimits& limits) noexcept;

 private:
  void collect(const RowLayout& layout, std::span<const RowRequest> requests);
  void merge(const RowLayout& layout, const ReadLimits& limits);

  // A target is one number: row, request, index, from the top bits to the lowest.
  Buffer<std::uint64_t> keys_, scratch_;
  int row_shift_ = 0, request_shift_ = 0;
  std::uint64_t request_mask_ = 0, index_mask_ = 0;
  std::vector<PlannedRead> reads_;
  std::int64_t unique_rows_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace gz
