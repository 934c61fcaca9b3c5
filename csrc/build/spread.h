// How the values of a column are spread, and the range of them that an int8 code spans.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "storage/encoding.h"

namespace gz {

// How values are spread: counts by the logarithm of the distance to a centre on either side of it,
// eight to an octave over 64 octaves. So outliers of any size leave the resolution of the bulk as
// it is, and one pass is enough.
inline constexpr std::int32_t kSpreadBins = 512;
inline constexpr std::int32_t kBinsPerOctave = 8;
// A distance's bits, shifted by this, are its exponent and three bits of its mantissa.
inline constexpr int kBinShift = 20;

struct SpreadTile {
  Lanes<float> centre{};
  Lanes<std::int32_t> first_bin{};  // the shifted bits of a distance in bin 0
  Lanes<float> lowest{}, highest{};
  // For every column side by side: the bins below the centre, then those above it, then the zeros,
  // which any range with 0 in it keeps exactly.
  std::array<Lanes<std::int64_t>, 2 * kSpreadBins + 1> counts{};
};

// Counts all values; false if one of them is not finite, and the counts are of no use then.
bool count_spread(const RowTile& tile, SpreadTile& spread) noexcept;

// The spread of one column.
struct Spread {
  float centre = 0;
  std::int32_t first_bin = 0;
  float lowest = std::numeric_limits<float>::infinity();
  float highest = -std::numeric_limits<float>::infinity();
  std::int64_t zeros = 0;
  std::array<std::int64_t, kSpreadBins> below{}, above{};

  // Adds one column of a tile. REQUIRES the same centre and bins in all that are added.
  void add(const SpreadTile& tile, std::size_t lane);
};

struct Affine {
  float scale;
  float zero_point;
};

// A spread to count into, with its bins where they resolve these values, [num_rows], `stride`
// floats apart. REQUIRES num_rows > 0.
Spread start_spread(const float* column, std::int64_t num_rows, std::int64_t stride);

// The scale and zero point of the least squared error. A spread without a value has both 0.
Affine choose_affine(const Spread& spread);

}  // namespace gz
