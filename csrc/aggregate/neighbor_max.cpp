#include "aggregate/neighbor_max.h"

#include <algorithm>
#include <vector>

#include "arrays/buffer.h"

namespace gz {
template <class T>
void neighbor_max(const GroupedEdges& edges, RowShape shape, Rows<const T> sources, bool is_min,
                  T* out) {
  using S = Sum<T>;
  const std::int64_t* const src = edges.src.data();
  const std::int64_t* const bounds = edges.bounds.data();
  const std::int64_t size = shape.size();
  const S sign = is_min ? S{-1} : S{1};
  const std::int64_t last_edge = edges.bounds.back() - kEdgesAhead;
  each_destination<S>(edges, size, [&](std::int64_t d, S* __restrict found) GZ_INLINED {
    std::fill_n(found, size, S{0});
    for (std::int64_t e = bounds[d]; e < bounds[d + 1]; ++e) {
      if (e < last_edge) prefetch_row(sources[src[e + kEdgesAhead]], size);
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
  each_destination<S>(edges, 0, [&](std::int64_t d, S*) GZ_INLINED {
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
  });
  const auto add = [&](std::int64_t s, const OutEdges& run, std::int64_t begin, std::int64_t end,
                       S* __restrict sums) GZ_INLINED {
    std::fill_n(sums, size, S{0});
    for (std::int64_t at = begin; at < end; ++at) {
      if (const std::int64_t ahead = run.ahead(at); ahead >= 0) {
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
  };
  EdgesBySource(edges).each_source<S>(size, add);
}

#define GZ_NEIGHBOR_MAX(T)                                                               \
  template void neighbor_max<T>(const GroupedEdges&, RowShape, Rows<const T>, bool, T*); \
  template void neighbor_max_backward<T>(const GroupedEdges&, RowShape, Rows<const T>,   \
                                         Rows<const T>, Rows<const T>, T*);
GZ_FOR_NUMBERS(GZ_NEIGHBOR_MAX)

}  // namespace gz
