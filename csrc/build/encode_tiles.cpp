#include "build/encode_tiles.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/half.h"
#include "base/isa.h"

// The kernels are written once, as loops over lanes without a branch, and compiled for every
// instruction set that they are dispatched to: each is inlined into a function of that target.
#define GZ_INLINE [[gnu::always_inline]] inline

namespace gz {
namespace {

constexpr std::size_t kLanes = kTileColumns;
constexpr std::uint32_t kMagnitude = 0x7FFFFFFFU;
constexpr std::int32_t kInfinity = 0x7F800000;

// Calls body(c) for every lane. Left as a loop, which becomes vector code as a whole; unrolled,
// only some of its statements would.
template <class Body>
GZ_INLINE void for_lanes(const Body& body) {
#pragma GCC unroll 1
  for (std::size_t c = 0; c < kLanes; ++c) body(c);
}

GZ_INLINE std::int32_t magnitude_of(float value) {
  return static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(value) & kMagnitude);
}

// The values of a row, with zeros in the lanes beyond a narrow tile.
template <bool kFull>
GZ_INLINE void load(const RowTile& tile, std::int64_t row, Lanes<float>& values) {
  const auto count = kFull ? kLanes : static_cast<std::size_t>(tile.num_columns);
  std::memcpy(values.data(), tile.rows + row * tile.stride, count * sizeof(float));
}

template <bool kFull, class Code>
GZ_INLINE void store(const RowTile& tile, std::int64_t row, const Lanes<Code>& codes,
                     std::byte* out) {
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Code));
  const auto count = kFull ? kLanes : static_cast<std::size_t>(tile.num_columns);
  std::memcpy(out + row * tile.stride * kBytes, codes.data(), count * sizeof(Code));
}

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

// To nearest, ties to even, without a call. REQUIRES |value| < 2^51.
GZ_INLINE double round_to_even(double value) {
  constexpr double kMagic = 0x1.8p52;
  return (value + kMagic) - kMagic;
}

GZ_INLINE void encode_lanes(const Lanes<float>& values, const ScaleTile& tile,
                            Lanes<std::int8_t>& codes, Lanes<float>& decoded,
                            Lanes<std::int32_t>& clipped) {
  Lanes<std::int32_t> steps;
  for_lanes([&](std::size_t c) {
    const double zero_point = static_cast<double>(tile.zero_point[c]);
    const double exact = (static_cast<double>(values[c]) - zero_point) * tile.per_step[c];
    const double above = exact > -1000.0 ? exact : -1000.0;
    steps[c] = static_cast<std::int32_t>(round_to_even(above < 1000.0 ? above : 1000.0));
  });
  for_lanes([&](std::size_t c) {
    const std::int32_t code = std::min(std::max(steps[c], -128), 127);
    clipped[c] = code != steps[c];
    decoded[c] = static_cast<float>(code) * tile.scale[c] + tile.zero_point[c];
    steps[c] = code;
  });
  for_lanes([&](std::size_t c) { codes[c] = static_cast<std::int8_t>(steps[c]); });
}

template <Encoding kEncoding>
GZ_INLINE void encode_lanes(const Lanes<float>& values, Lanes<std::uint16_t>& codes,
                            Lanes<float>& decoded, Lanes<std::int32_t>& clipped) {
  constexpr bool kIsFloat16 = kEncoding == Encoding::kFloat16;
  constexpr auto kLimit = static_cast<std::int32_t>(kIsFloat16 ? kFloat16Limit : kBFloat16Limit);
  Lanes<std::uint32_t> halves;
  for_lanes([&](std::size_t c) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(values[c]);
    halves[c] = kIsFloat16 ? narrow_float16(bits) : narrow_bfloat16(bits);
  });
  for_lanes([&](std::size_t c) {
    const std::uint32_t widened = kIsFloat16 ? widen_float16(halves[c]) : widen_bfloat16(halves[c]);
    decoded[c] = std::bit_cast<float>(widened);
    const std::int32_t magnitude = magnitude_of(values[c]);
    clipped[c] = (magnitude >= kLimit) & (magnitude < kInfinity);
  });
  for_lanes([&](std::size_t c) { codes[c] = static_cast<std::uint16_t>(halves[c]); });
}

template <Encoding kEncoding, bool kFull>
GZ_INLINE void encode_tile(const RowTile& tile, const ScaleTile& scale, std::byte* out,
                           LossTile& total) {
  constexpr bool kIsInt8 = kEncoding == Encoding::kInt8;
  std::conditional_t<kIsInt8, Lanes<std::int8_t>, Lanes<std::uint16_t>> codes;
  Lanes<float> values{}, decoded;
  Lanes<std::int32_t> clipped;
  const ScaleTile scales = scale;
  LossTile loss = total;
  Lanes<std::int32_t> num_clipped{}, num_finite{};
  for (std::int64_t row = 0; row < tile.num_rows; ++row) {
    load<kFull>(tile, row, values);
    if constexpr (kIsInt8) {
      encode_lanes(values, scales, codes, decoded, clipped);
    } else {
      encode_lanes<kEncoding>(values, codes, decoded, clipped);
    }
    store<kFull>(tile, row, codes, out);
    for_lanes([&](std::size_t c) {
      const bool is_finite = kIsInt8 || magnitude_of(values[c]) < kInfinity;
      num_clipped[c] += clipped[c];
      num_finite[c] += is_finite;
      // What is not finite adds nothing: as if it were the shift, stored exactly.
      values[c] = is_finite ? values[c] : loss.shift[c];
      decoded[c] = is_finite ? decoded[c] : values[c];
    });
    for_lanes([&](std::size_t c) {
      const double value = static_cast<double>(values[c]);
      const double moved = value - static_cast<double>(loss.shift[c]);
      const double error = std::fabs(static_cast<double>(decoded[c]) - value);
      loss.sum[c] += moved;
      loss.sum_of_squares[c] += moved * moved;
      loss.max_abs_error[c] = error > loss.max_abs_error[c] ? error : loss.max_abs_error[c];
      loss.squared_error[c] += error * error;
    });
  }
  for_lanes([&](std::size_t c) {
    loss.clipped[c] += num_clipped[c];
    loss.count[c] += num_finite[c];
  });
  total = loss;
}

bool is_full(const RowTile& tile) { return tile.num_columns == kTileColumns; }

bool count_portable(const RowTile& tile, SpreadTile& spread) {
  return is_full(tile) ? count_tile<true>(tile, spread) : count_tile<false>(tile, spread);
}

template <Encoding kEncoding>
void encode_portable(const RowTile& tile, const ScaleTile& scale, std::byte* out, LossTile& loss) {
  if (is_full(tile)) return encode_tile<kEncoding, true>(tile, scale, out, loss);
  encode_tile<kEncoding, false>(tile, scale, out, loss);
}

constexpr TileKernels kPortable{count_portable, encode_portable<Encoding::kFloat16>,
                                encode_portable<Encoding::kBFloat16>,
                                encode_portable<Encoding::kInt8>};

#ifdef GZ_HAS_AVX2_FUNCTIONS

__attribute__((target("avx2"))) bool count_avx2(const RowTile& tile, SpreadTile& spread) {
  return is_full(tile) ? count_tile<true>(tile, spread) : count_tile<false>(tile, spread);
}

template <Encoding kEncoding>
__attribute__((target("avx2"))) void encode_avx2(const RowTile& tile, const ScaleTile& scale,
                                                 std::byte* out, LossTile& loss) {
  if (is_full(tile)) return encode_tile<kEncoding, true>(tile, scale, out, loss);
  encode_tile<kEncoding, false>(tile, scale, out, loss);
}

constexpr TileKernels kAvx2{count_avx2, encode_avx2<Encoding::kFloat16>,
                            encode_avx2<Encoding::kBFloat16>, encode_avx2<Encoding::kInt8>};

#endif

}  // namespace

TileKernels::Encode TileKernels::encode(Encoding encoding) const noexcept {
  switch (encoding) {
    case Encoding::kFloat16:
      return encode_float16;
    case Encoding::kBFloat16:
      return encode_bfloat16;
    default:
      return encode_int8;
  }
}

const TileKernels& portable_tile_kernels() noexcept { return kPortable; }

const TileKernels& tile_kernels() noexcept {
#ifdef GZ_HAS_AVX2_FUNCTIONS
  if (__builtin_cpu_supports("avx2")) return kAvx2;
#endif
  return kPortable;
}

}  // namespace gz
