#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/errors.h"
#include "base/half.h"
#include "base/isa.h"
#include "build/encode.h"
#include "check.h"
#include "gather/gather.h"
#include "scratch.h"
#include "storage/column.h"

using namespace gz;
using namespace gz::test;

TEST(decoders_of_this_machine_agree_with_the_portable_ones) {
  std::vector<std::byte> items(2 * 65536 + 1);
  for (std::size_t i = 0; i < 65536; ++i) {
    const auto half = static_cast<std::uint16_t>(i);
    std::memcpy(items.data() + 1 + 2 * i, &half, 2);  // unaligned
  }
  std::vector<float> scale, zero_point;
  for (int i = 0; i < 65536; ++i) {
    scale.push_back(std::ldexp(1.0F + static_cast<float>(i % 7) / 9, i % 40 - 20));
    zero_point.push_back(std::ldexp(static_cast<float>(i % 11 - 5), i % 30 - 15));
  }
  for (const auto& [encoding, name, item_bytes, number, has_scales, kernels] : kEncodings) {
    for (const std::int64_t count : {std::int64_t{65536}, std::int64_t{13}, std::int64_t{0}}) {
      std::vector<std::byte> fast(4 * 65536 + 1), plain(4 * 65536 + 1);
      for (auto* const out : {&fast, &plain}) {
        is_portable = out == &plain;
        kernels().decode(items.data() + 1, count, scale.data(), zero_point.data(), out->data() + 1);
      }
      is_portable = false;
      CHECK(fast == plain);
    }
  }
}

TEST(halves_survive_the_way_to_float32_and_back) {
  bool same = true;
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto half = static_cast<std::uint16_t>(i);
    if (const float value = from_float16(half); !std::isnan(value)) {
      same = same && to_float16(value) == half;
    }
    if (const float value = from_bfloat16(half); !std::isnan(value)) {
      same = same && to_bfloat16(value) == half;
    }
  }
  CHECK(same);
  CHECK(from_float16(to_float16(1e30F)) == 65504 && from_float16(to_float16(-1e30F)) == -65504);
  CHECK(std::isnan(from_float16(to_float16(std::numeric_limits<float>::quiet_NaN()))));
  CHECK(std::isinf(from_bfloat16(to_bfloat16(std::numeric_limits<float>::infinity()))));
}
