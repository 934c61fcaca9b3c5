#include "aggregate/neighbor_sum.h"

#include <vector>

namespace gz {
template <class T>
void neighbor_sum(const GroupedEdges& edges, RowShape shape, Rows<const T> sources,
                  const Sum<T>* weight, bool is_mean, T* out) {
  const std::int64_t* const src = edges.src.data();
  const std::int64_t* const bounds = edges.bounds.data();
  const std::int64_t last_edge = edges.bounds.back() - kEdgesAhead;
  each_destination<Sum<T>>(edges, shape.channels, [&](std::int64_t d, Sum<T>* sums) GZ_INLINED {
    const std::int64_t begin = bounds[d], end = bounds[d + 1];
    const auto degree = static_cast<Sum<T>>(is_mean ? std::max<std::int64_t>(end - begin, 1) : 1);
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      const auto row = [&](std::int64_t e) GZ_INLINED {
        if (h == 0 && e < last_edge) prefetch_row(sources[src[e + kEdgesAhead]], shape.size());
        return sources[src[e]] + h * shape.channels;
      };
      const auto weight_of = [&](std::int64_t e) GZ_INLINED {
        return weight == nullptr ? Sum<T>{1} : weight[e * shape.heads + h];
      };
      sum_rows<T>(begin, end, shape.channels, row, weight_of, sums);
      store_row<T>(sums, shape.channels, out + d * shape.size() + h * shape.channels, degree);
    }
  });
}

template <class T>
void source_sum(const GroupedEdges& edges, RowShape shape, Rows<const T> destinations,
                const Sum<T>* weight, bool is_mean, T* out) {
  const std::int64_t* const bounds = edges.bounds.data();
  const auto add = [&](std::int64_t s, const OutEdges& run, std::int64_t begin, std::int64_t end,
                       Sum<T>* sums) GZ_INLINED {
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      const auto row = [&](std::int64_t i) GZ_INLINED {
        const std::int64_t ahead = h == 0 ? run.ahead(i) : -1;
        if (ahead >= 0) prefetch_row(destinations[ahead], shape.size());
        return destinations[run.edges[i].dst] + h * shape.channels;
      };
      const auto weight_of = [&](std::int64_t i) GZ_INLINED {
        const OutEdge edge = run.edges[i];
        const Sum<T> w = weight == nullptr ? Sum<T>{1} : weight[edge.edge * shape.heads + h];
        return is_mean ? w / static_cast<Sum<T>>(bounds[edge.dst + 1] - bounds[edge.dst]) : w;
      };
      sum_rows<T>(begin, end, shape.channels, row, weight_of, sums);
      store_row<T>(sums, shape.channels, out + s * shape.size() + h * shape.channels);
    }
  };
  EdgesBySource(edges).each_source<Sum<T>>(shape.channels, add);
}

template <class T>
void edge_dot(const GroupedEdges& edges, RowShape shape, Rows<const T> destinations,
              Rows<const T> sources, bool is_mean, Sum<T>* out) {
  const std::int64_t* const src = edges.src.data();
  const std::int64_t* const bounds = edges.bounds.data();
  clear_rest(edges, shape.heads, out);
  const std::int64_t last_edge = edges.bounds.back() - kEdgesAhead;
  each_destination<T>(edges, 0, [&](std::int64_t d, T*) GZ_INLINED {
    const std::int64_t begin = bounds[d], end = bounds[d + 1];
    const auto degree = static_cast<Sum<T>>(is_mean ? end - begin : 1);
    for (std::int64_t e = begin; e < end; ++e) {
      if (e < last_edge) prefetch_row(sources[src[e + kEdgesAhead]], shape.size());
      for (std::int64_t h = 0; h < shape.heads; ++h) {
        const std::int64_t at = h * shape.channels;
        const T* const a = destinations[d] + at;
        const T* const b = sources[src[e]] + at;
        const Sum<T> product = sum_over<Sum<T>>(
            shape.channels, [&](std::int64_t j) GZ_INLINED { return widen(a[j]) * widen(b[j]); });
        out[e * shape.heads + h] = product / degree;
      }
    }
  });
}

#define GZ_NEIGHBOR_SUM(T)                                                                         \
  template void neighbor_sum<T>(const GroupedEdges&, RowShape, Rows<const T>, const Sum<T>*, bool, \
                                T*);                                                               \
  template void source_sum<T>(const GroupedEdges&, RowShape, Rows<const T>, const Sum<T>*, bool,   \
                              T*);                                                                 \
  template void edge_dot<T>(const GroupedEdges&, RowShape, Rows<const T>, Rows<const T>, bool,     \
                            Sum<T>*);
GZ_FOR_NUMBERS(GZ_NEIGHBOR_SUM)

}  // namespace gz
