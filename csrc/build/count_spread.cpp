#include "build/spread.h"
#include "storage/encoding_loops.h"

namespace gz {
namespace {

template <bool kFull>
GZ_INLINE bool count_tile(const RowTile& tile, SpreadTile& spread) {
  const Lanes<float> centre = spread.centre;
  const Lanes<std::int32_t> first_bin = spread.first_bin;
  Lanes<float> values{}, lowest = spread.lowest, highest = spread.highest;
  Lanes<std::int32_t> bins, largest{};
  const auto num_columns = kFull ? kLanes : static_cast<std::size_t>(tile.num_columns);
  for (std::int64_t row = 0; row < tile.num_rows; ++row) {
    load<kFull>(tile, row, values);
    for_lanes([&](std::size_t c) {
      const float value = values[c];
      lowest[c] = value < lowest[c] ? value : lowest[c];
      highest[c] = value > highest[c] ? value : highest[c];
      largest[c] = std::max(largest[c], magnitude_of(value));
    });
    for_lanes([&](std::size_t c) {
      const float distance = values[c] - centre[c];
      const std::int32_t bin = (magnitude_of(distance) >> kBinShift) - first_bin[c];
      const std::int32_t kept = std::min(std::max(bin, 0), kSpreadBins - 1);
      const std::int32_t placed = kept + (distance < 0 ? 0 : kSpreadBins);
      bins[c] = values[c] == 0 ? 2 * kSpreadBins : placed;
    });
    for (std::size_t c = 0; c < num_columns; ++c) {
      ++spread.counts[static_cast<std::size_t>(bins[c])][c];
    }
  }
  spread.lowest = lowest;
  spread.highest = highest;
  const std::int32_t bits = *std::max_element(largest.begin(), largest.end());
  return bits < kInfinity;
}

}  // namespace

bool count_spread(const RowTile& tile, SpreadTile& spread) noexcept {
  bool is_finite = false;
  run_widest([&]() GZ_INLINED {
    is_finite = tile.num_columns == kTileColumns ? count_tile<true>(tile, spread)
                                                 : count_tile<false>(tile, spread);
  });
  return is_finite;
}

}  // namespace gz
