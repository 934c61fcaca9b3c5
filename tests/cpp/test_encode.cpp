#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/isa.h"
#include "build/encode.h"
#include "build/spread.h"
#include "check.h"

using namespace gz;
using namespace gz::test;

namespace {

std::vector<float> any_bits(std::size_t count) {
  std::mt19937 draw(7);
  std::vector<float> values(count);
  for (float& value : values) value = std::bit_cast<float>(static_cast<std::uint32_t>(draw()));
  return values;
}

template <class T>
bool same_bytes(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace

TEST(tile_kernels_of_this_machine_agree_with_the_portable_ones) {
  constexpr std::int64_t kRows = 300, kStride = 19;
  const std::vector<float> anything = any_bits(kRows * kStride);
  std::vector<float> finite = anything;
  for (float& value : finite) {
    if (!std::isfinite(value)) value = 0;
  }
  ScaleTile scales;
  SpreadTile bins;
  LossTile start;
  for (std::size_t c = 0; c < 16; ++c) {
    scales.scale[c] = std::ldexp(1.0F + static_cast<float>(c) / 9, static_cast<int>(c) * 8 - 60);
    scales.per_step[c] = c == 3 ? 0 : 1.0 / scales.scale[c];
    scales.zero_point[c] = static_cast<float>(c) - 4;
    bins.centre[c] = start.shift[c] = static_cast<float>(c) * 3 - 20;
    bins.first_bin[c] = 600 + static_cast<std::int32_t>(c);
  }
  for (const std::int64_t width : {std::int64_t{16}, std::int64_t{5}}) {
    for (const EncodingFacts& known : kEncodings) {
      const auto& values = known.has_scales ? finite : anything;
      const RowTile tile{values.data() + 1, kStride, kRows, width};
      std::vector<std::byte> codes[2];
      LossTile losses[2] = {start, start};
      for (int i = 0; i < 2; ++i) {
        codes[i].resize(2 * kRows * kStride);
        is_portable = i == 1;
        known.kernels().encode(tile, scales, codes[i].data(), losses[i]);
      }
      is_portable = false;
      CHECK(codes[0] == codes[1]);
      CHECK(same_bytes(losses[0], losses[1]));
    }
    SpreadTile spreads[2] = {bins, bins};
    for (SpreadTile& spread : spreads) {
      is_portable = &spread == &spreads[1];
      CHECK(count_spread({finite.data() + 1, kStride, kRows, width}, spread));
    }
    is_portable = false;
    CHECK(same_bytes(spreads[0], spreads[1]));
    std::int64_t counted = 0;
    for (const auto& bin : spreads[0].counts) {
      for (const std::int64_t count : bin) counted += count;
    }
    CHECK(counted == kRows * width);
    CHECK(!count_spread({anything.data() + 1, kStride, kRows, width}, spreads[0]));
  }
}

TEST(profiling_names_the_first_row_that_is_not_finite) {
  for (const std::int64_t columns : {1, 21, 200}) {
    constexpr std::int64_t kRows = 5000;
    std::vector<float> values(static_cast<std::size_t>(kRows * columns), 1.0F);
    const auto at = [&](std::int64_t row, std::int64_t c) -> float& {
      return values[static_cast<std::size_t>(row * columns + c)];
    };
    CHECK(RowEncoder(Encoding::kInt8, columns).profile(values.data(), kRows, 4) == -1);
    at(4999, 0) = std::numeric_limits<float>::quiet_NaN();
    CHECK(RowEncoder(Encoding::kInt8, columns).profile(values.data(), kRows, 4) == 4999);
    at(700, columns / 2) = -std::numeric_limits<float>::infinity();
    at(611, columns - 1) = std::numeric_limits<float>::infinity();
    CHECK(RowEncoder(Encoding::kInt8, columns).profile(values.data(), kRows, 4) == 611);
  }
}
