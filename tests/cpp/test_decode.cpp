#include <cmath>
#include <cstring>
#include <vector>

#include "build/encode.h"
#include "check.h"
#include "gather/gather.h"
#include "scratch.h"

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
      for (const auto& [machine, out] :
           {std::pair{Machine::kThis, &fast}, {Machine::kAny, &plain}}) {
        kernels(machine).decode(items.data() + 1, count, scale.data(), zero_point.data(),
                                out->data() + 1);
      }
      CHECK(fast == plain);
    }
  }
}
