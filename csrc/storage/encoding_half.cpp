// float16 and bfloat16: the nearest number of 16 bits, and what is beyond its range becomes the
// largest in it.
#include "base/half.h"
#include "storage/encoding_loops.h"

namespace gz {
namespace {

template <auto narrow, auto widen, auto widen8, std::uint32_t kFirstClipped>
struct Half {
  using Code = std::uint16_t;
  static constexpr bool kIsFinite = false;

  static float decode(Code code, std::int64_t, const float*, const float*) {
    return std::bit_cast<float>(widen(code));
  }

  GZ_WIDE static Floats8 decode8(const std::byte* items, std::int64_t i, const float*,
                                 const float*) {
    return widen8(items + 2 * i);
  }

  GZ_INLINE static void encode(const Lanes<float>& values, const ScaleTile&, Lanes<Code>& codes,
                               Lanes<float>& decoded, Lanes<std::int32_t>& clipped) {
    constexpr auto kLimit = static_cast<std::int32_t>(kFirstClipped);
    Lanes<std::uint32_t> halves;
    for_lanes([&](std::size_t c) { halves[c] = narrow(std::bit_cast<std::uint32_t>(values[c])); });
    for_lanes([&](std::size_t c) {
      decoded[c] = std::bit_cast<float>(widen(halves[c]));
      const std::int32_t magnitude = magnitude_of(values[c]);
      clipped[c] = (magnitude >= kLimit) & (magnitude < kInfinity);
    });
    for_lanes([&](std::size_t c) { codes[c] = static_cast<Code>(halves[c]); });
  }
};

using ToFloat16 = Half<narrow_float16, widen_float16, widen8_float16, kFloat16Limit>;
using ToBFloat16 = Half<narrow_bfloat16, widen_bfloat16, widen8_bfloat16, kBFloat16Limit>;

}  // namespace

const EncodingKernels& float16_kernels() noexcept { return kernels_of<ToFloat16>(); }
const EncodingKernels& bfloat16_kernels() noexcept { return kernels_of<ToBFloat16>(); }

}  // namespace gz
