// The loops of every encoding, over items and over tiles, for encoding_*.cpp alone. They are
// written once, without a branch, and compiled for every instruction set that they are dispatched
// to: each is inlined into a function of that target.
//
// An encoding is a `Kind` with
//   Code                                          what is stored
//   kIsFinite                                     whether only finite values are encoded
//   decode(code, i, scale, zero_point)            the float32 of item i
//   decode8(items, i, scale, zero_point)          the same of eight, for GZ_WIDE
//   encode(values, scales, codes, decoded, clipped)   the values of a row of a tile
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/isa.h"
#include "storage/encoding.h"

namespace gz {
namespace {

constexpr std::size_t kLanes = kTileColumns;
constexpr std::int32_t kInfinity = 0x7F800000;

// Calls body(c) for every lane. Left as a loop, which becomes vector code as a whole; unrolled,
// only some of its statements would.
template <class Body>
GZ_INLINE void for_lanes(const Body& body) {
#pragma GCC unroll 1
  for (std::size_t c = 0; c < kLanes; ++c) body(c);
}

GZ_INLINE std::int32_t magnitude_of(float value) {
  return static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU);
}

// The values of a row, with zeros in the lanes beyond a narrow tile.
template <bool kFull>
GZ_INLINE void load(const RowTile& tile, std::int64_t row, Lanes<float>& values) {
  const auto count = kFull ? kLanes : static_cast<std::size_t>(tile.num_columns);
  std::memcpy(values.data(), tile.rows + row * tile.stride, count * sizeof(float));
}

template <class Kind, bool kFull>
GZ_INLINE void encode_tile(const RowTile& tile, const ScaleTile& scale, std::byte* out,
                           LossTile& total) {
  using Code = typename Kind::Code;
  Lanes<Code> codes;
  Lanes<float> values{}, decoded;
  Lanes<std::int32_t> clipped;
  const ScaleTile scales = scale;
  LossTile loss = total;
  Lanes<std::int32_t> num_clipped{}, num_finite{};
  const auto num_columns = kFull ? kLanes : static_cast<std::size_t>(tile.num_columns);
  for (std::int64_t row = 0; row < tile.num_rows; ++row) {
    load<kFull>(tile, row, values);
    Kind::encode(values, scales, codes, decoded, clipped);
    std::memcpy(out + row * tile.stride * static_cast<std::int64_t>(sizeof(Code)), codes.data(),
                num_columns * sizeof(Code));
    for_lanes([&](std::size_t c) {
      const bool is_finite = Kind::kIsFinite || magnitude_of(values[c]) < kInfinity;
      num_clipped[c] += clipped[c];
      num_finite[c] += is_finite;
      // Infinities and NaN add nothing: as if it were the shift, stored exactly.
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

template <class Kind>
void encode(const RowTile& tile, const ScaleTile& scale, std::byte* out, LossTile& loss) {
  run_widest([&]() GZ_INLINED {
    if (tile.num_columns == kTileColumns) {
      encode_tile<Kind, true>(tile, scale, out, loss);
    } else {
      encode_tile<Kind, false>(tile, scale, out, loss);
    }
  });
}

template <class Kind>
GZ_INLINE float decode_item(const std::byte* items, std::int64_t i, const float* scale,
                            const float* zero_point) {
  typename Kind::Code code;
  std::memcpy(&code, items + i * static_cast<std::int64_t>(sizeof code), sizeof code);
  return Kind::decode(code, i, scale, zero_point);
}

template <class Kind>
GZ_INLINE void decode_from(std::int64_t begin, const std::byte* items, std::int64_t count,
                           const float* scale, const float* zero_point, std::byte* out) {
  for (std::int64_t i = begin; i < count; ++i) {
    const float value = decode_item<Kind>(items, i, scale, zero_point);
    std::memcpy(out + i * static_cast<std::int64_t>(sizeof value), &value, sizeof value);
  }
}

template <class Kind>
void decode_portable(const std::byte* items, std::int64_t count, const float* scale,
                     const float* zero_point, std::byte* out) {
  decode_from<Kind>(0, items, count, scale, zero_point, out);
}

template <class Kind>
GZ_INLINE void add_from(std::int64_t begin, const std::byte* const* rows, std::int64_t num_rows,
                        std::int64_t count, const float* scale, const float* zero_point,
                        std::byte* sums) {
  for (std::int64_t row = 0; row < num_rows; ++row) {
    for (std::int64_t i = begin; i < count; ++i) {
      std::byte* const at = sums + i * static_cast<std::int64_t>(sizeof(float));
      float sum;
      std::memcpy(&sum, at, sizeof sum);
      sum += decode_item<Kind>(rows[row], i, scale, zero_point);
      std::memcpy(at, &sum, sizeof sum);
    }
  }
}

template <class Kind>
void add_portable(const std::byte* const* rows, std::int64_t num_rows, std::int64_t count,
                  const float* scale, const float* zero_point, std::byte* sums) {
  add_from<Kind>(0, rows, num_rows, count, scale, zero_point, sums);
}

template <class Kind>
GZ_WIDE void decode_wide(const std::byte* items, std::int64_t count, const float* scale,
                         const float* zero_point, std::byte* out) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    store8(reinterpret_cast<float*>(out + 4 * i), Kind::decode8(items, i, scale, zero_point));
  }
  decode_from<Kind>(i, items, count, scale, zero_point, out);
}

// Items i … i + 8 kRegisters - 1 of all rows: their sums stay in registers.
template <class Kind, int kRegisters>
GZ_WIDE void add_wide_tile(std::int64_t i, const std::byte* const* rows, std::int64_t num_rows,
                           const float* scale, const float* zero_point, std::byte* sums) {
  auto* const to = reinterpret_cast<float*>(sums + 4 * i);
  Floats8 sum[kRegisters];
  for (int k = 0; k < kRegisters; ++k) sum[k] = load8(to + 8 * k);
  for (std::int64_t row = 0; row < num_rows; ++row) {
    for (int k = 0; k < kRegisters; ++k) {
      sum[k] = add8(sum[k], Kind::decode8(rows[row], i + 8 * k, scale, zero_point));
    }
  }
  for (int k = 0; k < kRegisters; ++k) store8(to + 8 * k, sum[k]);
}

template <class Kind>
GZ_WIDE void add_wide(const std::byte* const* rows, std::int64_t num_rows, std::int64_t count,
                      const float* scale, const float* zero_point, std::byte* sums) {
  constexpr int kRegisters = 8;
  std::int64_t i = 0;
  for (; i + 8 * kRegisters <= count; i += 8 * kRegisters) {
    add_wide_tile<Kind, kRegisters>(i, rows, num_rows, scale, zero_point, sums);
  }
  for (; i + 8 <= count; i += 8) {
    add_wide_tile<Kind, 1>(i, rows, num_rows, scale, zero_point, sums);
  }
  add_from<Kind>(i, rows, num_rows, count, scale, zero_point, sums);
}

// `Kind`'s functions for this machine.
template <class Kind>
const EncodingKernels& kernels_of() noexcept {
  EncodeTile encoded = nullptr;
  if constexpr (requires { &Kind::encode; }) encoded = encode<Kind>;
  static const EncodingKernels portable{decode_portable<Kind>, add_portable<Kind>, encoded};
  static const EncodingKernels wide{decode_wide<Kind>, add_wide<Kind>, encoded};
  return runs_wide() ? wide : portable;
}

}  // namespace
}  // namespace gz
