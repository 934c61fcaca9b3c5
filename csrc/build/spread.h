// The range of values that the int8 code of a column spans.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "build/encode_tiles.h"

namespace gz {

// How the values of one column are spread (see SpreadTile).
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
