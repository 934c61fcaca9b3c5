// int8: a step of a range that every column has for itself (build/spread.h chooses it).
#include "storage/encoding_loops.h"

namespace gz {
namespace {

// To nearest, ties to even, without a call. REQUIRES |value| < 2^51.
GZ_INLINE double round_to_even(double value) {
  constexpr double kMagic = 0x1.8p52;
  return (value + kMagic) - kMagic;
}

struct Int8 {
  using Code = std::int8_t;
  static constexpr bool kIsFinite = true;

  // Two roundings, never one fused: the same bits on every machine, and a code whose product is
  // -zero_point decodes to exactly 0.
  static float decode(Code code, std::int64_t i, const float* scale, const float* zero_point) {
    return static_cast<float>(code) * scale[i] + zero_point[i];
  }

  GZ_WIDE static Floats8 decode8(const std::byte* items, std::int64_t i, const float* scale,
                                 const float* zero_point) {
    return add8(mul8(widen8_int8(items + i), load8(scale + i)), load8(zero_point + i));
  }

  GZ_INLINE static void encode(const Lanes<float>& values, const ScaleTile& tile,
                               Lanes<Code>& codes, Lanes<float>& decoded,
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
    for_lanes([&](std::size_t c) { codes[c] = static_cast<Code>(steps[c]); });
  }
};

}  // namespace

const EncodingKernels& int8_kernels() noexcept { return kernels_of<Int8>(); }

}  // namespace gz
