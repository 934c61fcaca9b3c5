#include "aggregate/neighbor_softmax.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>
#include <vector>

#include "aggregate/rows.h"

namespace gz {
namespace {

// exp of a float that is at most 0, within 2 units of the last place. 2^n times a polynomial of
// what is left, as Cephes has it, without a branch: loops over it become vector code.
GZ_INLINE float exp_below_zero(float x) {
  constexpr float kLeast = -87.0F;  // where exp is about the smallest normal number
  const float clamped = x < kLeast ? kLeast : x;
  // Adding 1.5 * 2^23 rounds to a whole number, which stands in the last bits.
  constexpr float kRound = 12582912.0F;
  const float shifted = clamped * 1.44269504088896341F + kRound;
  const float n = shifted - kRound;
  const float r = (clamped - n * 0.693359375F) - n * -2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = (p * r) * r + r + 1.0F;
  const std::uint32_t power = std::bit_cast<std::uint32_t>(shifted) << 23;
  const float result = std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + power);
  const float small = x < kLeast ? 0.0F : result;
  return x == x ? small : x;
}

GZ_INLINE double exp_below_zero(double x) { return std::exp(x); }

}  // namespace

template <class S>
void neighbor_softmax(const GroupedEdges& edges, std::int64_t heads, const S* scores, S* out) {
  const std::int64_t* const bounds = edges.bounds.data();
  clear_rest(edges, heads, out);
  for_destinations(edges, [&](std::int64_t first, std::int64_t last) {
    std::vector<S> of_heads(static_cast<std::size_t>(heads));
    run_widest([&]() GZ_INLINED {
      S* const found = of_heads.data();
      // Visits the numbers [begin, end) of a whole list.
      const auto for_list = [&](std::int64_t begin, std::int64_t end, const auto& visit)
                                GZ_INLINED {
                                  for (std::int64_t at = begin; at < end; at += heads) {
                                    for (std::int64_t h = 0; h < heads; ++h)
                                      visit(at + h, found[h]);
                                  }
                                };
      for (std::int64_t d = first; d < last; ++d) {
        const std::int64_t begin = bounds[d] * heads, end = bounds[d + 1] * heads;
        if (begin < end) std::copy_n(scores + begin, heads, found);
        for_list(begin, end, [&](std::int64_t at, S& largest) GZ_INLINED {
          largest = scores[at] > largest ? scores[at] : largest;
        });
        for_list(begin, end, [&](std::int64_t at, const S& largest) GZ_INLINED {
          out[at] = scores[at] - largest;
        });
      }
      // Many destinations in one go: the edges of one alone fill no vector.
      const std::int64_t end_of_all = bounds[last] * heads;
      for (std::int64_t at = bounds[first] * heads; at < end_of_all; ++at) {
        out[at] = exp_below_zero(out[at]);
      }
      for (std::int64_t d = first; d < last; ++d) {
        const std::int64_t begin = bounds[d] * heads, end = bounds[d + 1] * heads;
        std::fill_n(found, heads, S{0});
        for_list(begin, end, [&](std::int64_t at, S& sum) GZ_INLINED { sum += out[at]; });
        for_list(begin, end, [&](std::int64_t at, const S& sum) GZ_INLINED {
          out[at] /= sum + static_cast<S>(1e-16);
        });
      }
    });
  });
}

template <class S>
void neighbor_softmax_backward(const GroupedEdges& edges, std::int64_t heads, const S* made,
                               const S* grad, S* out) {
  const std::int64_t* const bounds = edges.bounds.data();
  clear_rest(edges, heads, out);
  for_destinations(edges, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t d = first; d < last; ++d) {
      for (std::int64_t h = 0; h < heads; ++h) {
        S sum = 0;
        for (std::int64_t e = bounds[d]; e < bounds[d + 1]; ++e) {
          sum += made[e * heads + h] * grad[e * heads + h];
        }
        for (std::int64_t e = bounds[d]; e < bounds[d + 1]; ++e) {
          out[e * heads + h] = made[e * heads + h] * (grad[e * heads + h] - sum);
        }
      }
    }
  });
}

#define GZ_NEIGHBOR_SOFTMAX(S)                                                            \
  template void neighbor_softmax<S>(const GroupedEdges&, std::int64_t, const S*, S*);     \
  template void neighbor_softmax_backward<S>(const GroupedEdges&, std::int64_t, const S*, \
                                             const S*, S*);
GZ_NEIGHBOR_SOFTMAX(float)
GZ_NEIGHBOR_SOFTMAX(double)

}  // namespace gz
