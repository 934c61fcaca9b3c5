// What encoding does to every value, sixteen columns of some rows at a time: counting how values
// are spread, and storing codes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "storage/encoding.h"

namespace gz {

// Columns of a tile: a cache line of every row.
inline constexpr std::int64_t kTileColumns = 16;

// One number for each column of a tile. Lanes beyond the last column hold anything.
template <class T>
using Lanes = std::array<T, static_cast<std::size_t>(kTileColumns)>;

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
  // Of every column side by side: the bins below the centre, then those above it, then the zeros,
  // which any range with 0 in it keeps exactly.
  std::array<Lanes<std::int64_t>, 2 * kSpreadBins + 1> counts{};
};

// kInt8: what a code stands for, float(code) * scale + zero_point.
struct ScaleTile {
  Lanes<float> scale{}, zero_point{};
  Lanes<double> per_step{};  // 1 / scale, or 0 where the column is constant
};

// What encoding lost: sums over finite values.
struct LossTile {
  Lanes<float> shift{};  // near the values, so that sums of squares keep their digits
  Lanes<double> sum{}, sum_of_squares{};  // of what remains of a value after the shift
  Lanes<double> max_abs_error{}, squared_error{};
  Lanes<std::int64_t> count{}, clipped{};
};

// Less than 2^31 rows of up to kTileColumns columns, `stride` floats apart.
struct RowTile {
  const float* rows;
  std::int64_t stride;
  std::int64_t num_rows;
  std::int64_t num_columns;
};

struct TileKernels {
  // Counts all values; false if one of them is not finite, and the counts are of no use then.
  bool (*count)(const RowTile& tile, SpreadTile& spread);
  // Writes the codes of row r to out + r * stride * item_bytes. Only kInt8 looks at `scale`.
  using Encode = void (*)(const RowTile& tile, const ScaleTile& scale, std::byte* out,
                          LossTile& loss);
  Encode encode_float16, encode_bfloat16, encode_int8;

  Encode encode(Encoding encoding) const noexcept;
};

// The fastest functions of this machine, and those that any machine runs. Both give the same bits.
const TileKernels& tile_kernels() noexcept;
const TileKernels& portable_tile_kernels() noexcept;

}  // namespace gz
