// float32 rows to stored codes: finding the range of every column, encoding, and measuring the
// loss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "build/spread.h"
#include "storage/encoding.h"

namespace gz {

// Errors of encoding in one column: sums over its finite values.
struct ColumnLoss {
  double max_abs_error = 0;
  double squared_error = 0;
  std::int64_t clipped = 0;  // values that the code's range does not reach
  std::int64_t count = 0;
  double variance = 0;
};

// Encodes the rows of one attribute, slab by slab. Where the encoding has scales, all rows go
// through profile() first. Results do not depend on the number of threads. Thread safety: none.
class RowEncoder {
 public:
  RowEncoder(Encoding encoding, std::int64_t num_columns);

  // For scales: takes `num_rows` rows into account, [num_rows, num_columns]. Returns the first row
  // with a value that is not finite, or -1; after such a row this encoder is of no further use.
  std::int64_t profile(const float* rows, std::int64_t num_rows, int threads);
  // Fixes scales and zero points, by what profile() saw.
  void fit();

  // Encodes `num_rows` rows into `out` ([num_rows, num_columns] codes).
  // REQUIRES fit() before it where there are scales, and rows that profile() has seen.
  void encode(const float* rows, std::int64_t num_rows, std::byte* out, int threads);

  Encoding encoding() const noexcept { return encoding_; }
  std::int64_t num_columns() const noexcept { return num_columns_; }
  const std::vector<float>& scale() const noexcept { return scale_; }
  const std::vector<float>& zero_point() const noexcept { return zero_point_; }
  // Losses of every column, from all rows that were encoded so far.
  std::vector<ColumnLoss> losses() const;

 private:
  // Threads share the rows by ranges of columns and, where these are few, by parts of the rows.
  // Each part keeps its own sums, so that they add up in one order.
  std::size_t num_sums() const { return static_cast<std::size_t>(num_parts_ * num_tiles_); }
  // Calls visit(sums, lane) for every part's sums of a column.
  template <class Sums, class Visit>
  void each_part(Sums& sums, std::size_t column, const Visit& visit) const {
    for (std::size_t at = column / kTileColumns; at < sums.size();
         at += static_cast<std::size_t>(num_tiles_)) {
      visit(sums[at], column % kTileColumns);
    }
  }
  template <class Body>
  void for_tiles(const float* rows, std::int64_t num_rows, int threads, const Body& body) const;

  Encoding encoding_;
  std::int64_t num_columns_;
  std::int64_t num_tiles_;
  std::int64_t num_parts_;
  std::vector<SpreadTile> spreads_;  // [num_parts, num_tiles] once there were rows
  std::vector<float> scale_, zero_point_;
  std::vector<ScaleTile> scales_;  // [num_tiles]: the same, side by side
  std::vector<LossTile> losses_;   // [num_parts, num_tiles] once there were rows
};

}  // namespace gz
