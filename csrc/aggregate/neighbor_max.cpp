#include "aggregate/neighbor_max.h"

#include <algorithm>
#include <vector>

#include "arrays/buffer.h"

namespace gz {
namespace {

constexpr std::int64_t kPrefetchAhead = 16;

}  // namespace

template <class T>
void neighbor_max(const GroupedEdges& edges, RowShape shape, Rows<const T> sources, bool is_min,
                  T* out) {
  using S = Sum<T>;
  const std::int64_t* const src = edges.src.data();
  const std::int64_t* const bounds = edges.bounds.data();
  const std::int64_t size = shape.size();
  for_destinations(edges, [&](std::int64_t first, std::int64_t last) {
    std::vector<S> of_dst(static_cast<std::size_t>(size));
    run_widest([&]() GZ_INLINED {
      S* const __restrict found = of_dst.data();
      const S sign = is_min ? S{-1} : S{1};
      const std::int64_t last_edge = bounds[last] - kPrefetchAhead;
      for (std::int64_t d = first; d < last; ++d) {
        std::fill_n(found, size, S{0});
        for (std::int64_t e = bounds[d]; e < bounds[d + 1]; ++e) {
          if (e < last_edge) prefetch_row(sources[src[e + kPrefetchAhead]], size);
          const T* const row = sources[src[e]];
          if (e == bounds[d]) {
            for (std::int64_t j = 0; j < size; ++j) found[j] = sign * widen(row[j]);
            continue;
          }
          for (std::int64_t j = 0; j < size; ++j) {
            const S value = sign * widen(row[j]);
            const S larger = value > found[j] ? value : found[j];
            found[j] = value == value ? larger : value;
          }
        }
        for (std::int64_t j = 0; j < size; ++j) found[j] *= sign;
        store_row<T>(found, size, out + d * size);
      }
    });
  });
}

template <class T>
void neighbor_max_backward(const GroupedEdges& edges, RowShape shape, Rows<const T> sources,
                           Rows<const T> made, Rows<const T> grad, T* out) {
  using S = Sum<T>;
  const std::int64_t* const src = edges.src.data();
  const std::int64_t* const bounds = edges.bounds.data();
  const std::int64_t size = shape.size();
  Buffer<S> shares(edges.num_dst() * size);
  for_destinations(edges, [&](std::int64_t first, std::int64_t last) {
    run_widest([&]() GZ_INLINED {
      for (std::int64_t d = first; d < last; ++d) {
        const T* const winner = made[d];
        const T* const of_dst = grad[d];
        S* const __restrict share = shares.data() + d * size;
        for (std::int64_t j = 0; j < size; ++j) share[j] = widen(winner[j]) == 0 ? S{1} : S{0};
        for (std::int64_t e = bounds[d]; e < bounds[d + 1]; ++e) {
          const T* const row = sources[src[e]];
          for (std::int64_t j = 0; j < size; ++j) {
            share[j] += widen(row[j]) == widen(winner[j]) ? S{1} : S{0};
          }
        }
        for (std::int64_t j = 0; j < size; ++j) share[j] = widen(of_dst[j]) / share[j];
      }
    });
  });
  EdgesBySource(edges).for_sources([&](const OutEdges& run) {
    std::vector<S> of_source(static_cast<std::size_t>(size));
    run_widest([&]() GZ_INLINED {
      S* const __restrict sums = of_source.data();
      std::int64_t at = 0;
      const std::int64_t last_edge = run.count() - kPrefetchAhead;
      for (std::int64_t s = run.first; s < run.last; ++s) {
        std::fill_n(sums, size, S{0});
        for (; at < run.ends[s - run.first]; ++at) {
          if (at < last_edge) {
            const std::int64_t ahead = run.edges[at + kPrefetchAhead].dst;
            prefetch_row(made[ahead], size);
            prefetch_row(shares.data() + ahead * size, size);
          }
          const std::int64_t d = run.edges[at].dst;
          const T* const row = sources[s];
          const T* const winner = made[d];
          const S* const share = shares.data() + d * size;
          for (std::int64_t j = 0; j < size; ++j) {
            sums[j] += widen(row[j]) == widen(winner[j]) ? share[j] : S{0};
          }
        }
        store_row<T>(sums, size, out + s * size);
      }
    });
  });
}

#define GZ_NEIGHBOR_MAX(T)                                                               \
  template void neighbor_max<T>(const GroupedEdges&, RowShape, Rows<const T>, bool, T*); \
  template void neighbor_max_backward<T>(const GroupedEdges&, RowShape, Rows<const T>,   \
                                         Rows<const T>, Rows<const T>, T*);
GZ_FOR_NUMBERS(GZ_NEIGHBOR_MAX)

}  // namespace gz
