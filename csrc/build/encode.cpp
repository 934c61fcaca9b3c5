#include "build/encode.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "arrays/parallel.h"
#include "base/chunk_sizes.h"

namespace gz {
namespace {

// Tiles of a thread's range of columns, and rows of a block of them: 256 bytes of a row are read
// one after another, and a block of 64 KiB stays in the cache for all its tiles.
constexpr std::int64_t kRangeTiles = 4;
// Least number of tasks for the threads: ranges of columns times parts of the rows.
constexpr std::int64_t kTasks = 16;
constexpr std::int64_t kNoRow = std::numeric_limits<std::int64_t>::max();

std::int64_t divided_up(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

void lower_to(std::atomic<std::int64_t>& least, std::int64_t value) {
  std::int64_t seen = least.load();
  while (value < seen && !least.compare_exchange_weak(seen, value)) {
  }
}

std::int64_t first_bad_row(const RowTile& tile) {
  for (std::int64_t row = 0; row < tile.num_rows; ++row) {
    const float* const values = tile.rows + row * tile.stride;
    const auto is_bad = [](float value) { return !std::isfinite(value); };
    if (std::any_of(values, values + tile.num_columns, is_bad)) return row;
  }
  return kNoRow;
}

}  // namespace

RowEncoder::RowEncoder(Encoding encoding, std::int64_t num_columns)
    : encoding_(encoding),
      num_columns_(num_columns),
      num_tiles_(divided_up(num_columns, kTileColumns)),
      num_parts_(divided_up(kTasks, std::max<std::int64_t>(1, num_tiles_ / kRangeTiles))),
      scales_(static_cast<std::size_t>(num_tiles_)) {}

// Calls body(tile, first row, tile's number, number of its sums) for every tile; those with the
// same sums in the order of their rows, by one thread.
template <class Body>
void RowEncoder::for_tiles(const float* rows, std::int64_t num_rows, int threads,
                           const Body& body) const {
  const std::int64_t num_ranges = divided_up(num_tiles_, kRangeTiles);
  const auto run = [&](std::int64_t part, std::int64_t range) {
    const std::int64_t first_tile = range * kRangeTiles;
    const std::int64_t last_tile = std::min(first_tile + kRangeTiles, num_tiles_);
    const std::int64_t end = num_rows * (part + 1) / num_parts_;
    for (std::int64_t row = num_rows * part / num_parts_; row < end;
         row += chunk_sizes.encoded_rows) {
      for (std::int64_t t = first_tile; t < last_tile; ++t) {
        const std::int64_t column = t * kTileColumns;
        const RowTile tile{.rows = rows + row * num_columns_ + column,
                           .stride = num_columns_,
                           .num_rows = std::min(chunk_sizes.encoded_rows, end - row),
                           .num_columns = std::min(kTileColumns, num_columns_ - column)};
        body(tile, row, t, static_cast<std::size_t>(part * num_tiles_ + t));
      }
    }
  };
  parallel_for(num_parts_ * num_ranges, 1, threads,
               [&](std::int64_t task, std::int64_t) { run(task / num_ranges, task % num_ranges); });
}

std::int64_t RowEncoder::profile(const float* rows, std::int64_t num_rows, int threads) {
  if (num_rows == 0) return -1;
  if (spreads_.empty()) {
    spreads_.resize(num_sums());
    parallel_for(num_columns_, 1, threads, [&](std::int64_t c, std::int64_t) {
      const Spread start = start_spread(rows + c, num_rows, num_columns_);
      each_part(spreads_, static_cast<std::size_t>(c), [&](SpreadTile& tile, std::size_t lane) {
        tile.centre[lane] = start.centre;
        tile.first_bin[lane] = start.first_bin;
        tile.lowest[lane] = start.lowest;
        tile.highest[lane] = start.highest;
      });
    });
  }
  std::atomic<std::int64_t> first_bad{kNoRow};
  for_tiles(rows, num_rows, threads,
            [&](const RowTile& tile, std::int64_t row, std::int64_t, std::size_t sum) {
              if (row > first_bad.load(std::memory_order_relaxed)) return;
              if (!count_spread(tile, spreads_[sum]))
                lower_to(first_bad, row + first_bad_row(tile));
            });
  return first_bad.load() == kNoRow ? -1 : first_bad.load();
}

void RowEncoder::fit() {
  scale_.resize(static_cast<std::size_t>(num_columns_));
  zero_point_.resize(static_cast<std::size_t>(num_columns_));
  parallel_for(num_columns_, 1, 0, [&](std::int64_t column, std::int64_t) {
    const auto c = static_cast<std::size_t>(column);
    const std::size_t lane = c % kTileColumns;
    Spread spread;
    each_part(spreads_, c, [&](const SpreadTile& tile, std::size_t) { spread.add(tile, lane); });
    const auto [scale, zero_point] = choose_affine(spread);
    ScaleTile& tile = scales_[c / kTileColumns];
    tile.scale[lane] = scale_[c] = scale;
    tile.zero_point[lane] = zero_point_[c] = zero_point;
    tile.per_step[lane] = scale > 0 ? 1.0 / scale : 0.0;
  });
  spreads_ = {};
}

void RowEncoder::encode(const float* rows, std::int64_t num_rows, std::byte* out, int threads) {
  if (num_rows == 0) return;
  if (losses_.empty()) {
    losses_.resize(num_sums());
    for (std::int64_t c = 0; c < num_columns_; ++c) {
      std::int64_t row = 0;
      while (row < num_rows && !std::isfinite(rows[row * num_columns_ + c])) ++row;
      if (row == num_rows) continue;
      each_part(losses_, static_cast<std::size_t>(c), [&](LossTile& tile, std::size_t lane) {
        tile.shift[lane] = rows[row * num_columns_ + c];
      });
    }
  }
  const auto encode_tile = kernels(encoding_).encode;
  for_tiles(rows, num_rows, threads,
            [&](const RowTile& tile, std::int64_t, std::int64_t number, std::size_t sum) {
              std::byte* const to = out + (tile.rows - rows) * item_bytes(encoding_);
              encode_tile(tile, scales_[static_cast<std::size_t>(number)], to, losses_[sum]);
            });
}

std::vector<ColumnLoss> RowEncoder::losses() const {
  std::vector<ColumnLoss> losses(static_cast<std::size_t>(num_columns_));
  for (std::size_t c = 0; c < losses.size(); ++c) {
    ColumnLoss& loss = losses[c];
    double sum = 0, sum_of_squares = 0;
    each_part(losses_, c, [&](const LossTile& tile, std::size_t lane) {
      loss.max_abs_error = std::max(loss.max_abs_error, tile.max_abs_error[lane]);
      loss.squared_error += tile.squared_error[lane];
      loss.clipped += tile.clipped[lane];
      loss.count += tile.count[lane];
      sum += tile.sum[lane];
      sum_of_squares += tile.sum_of_squares[lane];
    });
    if (loss.count == 0) continue;
    const auto n = static_cast<double>(loss.count);
    loss.variance = std::max(0.0, (sum_of_squares - sum * sum / n) / n);
  }
  return losses;
}

}  // namespace gz
