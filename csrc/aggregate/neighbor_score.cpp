#include "aggregate/neighbor_score.h"

#include <algorithm>
#include <vector>

namespace gz {
namespace {

// Sums over all edges are taken in this many parts, for any number of threads.
constexpr std::int64_t kParts = 64;

// Adds an edge's gradient at a head to that of one of its ends and, if wanted, of the vector.
template <bool kHasAttention, class T, class S>
GZ_INLINE void add_grads(std::int64_t channels, const T* a, const T* b, const S* attention,
                         S weight, S slope, S* __restrict to_end, S* __restrict to_attention) {
  for (std::int64_t j = 0; j < channels; ++j) {
    const S sum = widen(a[j]) + widen(b[j]);
    const S steepness = sum > 0 ? S{1} : slope;
    to_end[j] += weight * attention[j] * steepness;
    if constexpr (kHasAttention) to_attention[j] += weight * (sum * steepness);
  }
}

template <class T>
void backward_at_destinations(const GroupedEdges& edges, const ScoreInputs<T>& inputs,
                              const Sum<T>* grad, T* destinations, Sum<T>* attention) {
  using S = Sum<T>;
  const std::int64_t* const src = edges.src.data();
  const std::int64_t* const bounds = edges.bounds.data();
  const auto [heads, channels] = inputs.shape;
  const std::int64_t size = inputs.shape.size();
  const auto row_size = static_cast<std::size_t>(size);
  const EdgePieces parts = EdgePieces::in_parts(edges, kParts);
  std::vector<double> of_parts(static_cast<std::size_t>(parts.count()) * row_size);
  parallel_for(parts.count(), 1, edges.threads, [&](std::int64_t begin, std::int64_t end) {
    std::vector<S> of_dst(row_size), of_attention(row_size);
    run_widest([&]() GZ_INLINED {
      S* const to_dst = of_dst.data();
      S* const to_attention = of_attention.data();
      for (std::int64_t part = begin; part < end; ++part) {
        double* const sums = of_parts.data() + part * size;
        const std::int64_t last = parts.first(part + 1);
        const std::int64_t last_edge = bounds[last] - kEdgesAhead;
        for (std::int64_t d = parts.first(part); d < last; ++d) {
          std::fill_n(to_dst, size, S{0});
          std::fill_n(to_attention, size, S{0});
          for (std::int64_t e = bounds[d]; e < bounds[d + 1]; ++e) {
            if (e < last_edge) prefetch_row(inputs.sources[src[e + kEdgesAhead]], size);
            for (std::int64_t h = 0; h < heads; ++h) {
              const std::int64_t at = h * channels;
              add_grads<true>(channels, inputs.sources[src[e]] + at, inputs.destinations[d] + at,
                              inputs.attention + at, grad[e * heads + h], inputs.slope, to_dst + at,
                              to_attention + at);
            }
          }
          store_row<T>(to_dst, size, destinations + d * size);
          for (std::int64_t j = 0; j < size; ++j) sums[j] += double{to_attention[j]};
        }
      }
    });
  });
  for (std::int64_t j = 0; j < size; ++j) {
    double sum = 0;
    for (std::size_t at = static_cast<std::size_t>(j); at < of_parts.size(); at += row_size) {
      sum += of_parts[at];
    }
    attention[j] = static_cast<S>(sum);
  }
}

}  // namespace

template <class T>
void neighbor_score(const GroupedEdges& edges, const ScoreInputs<T>& inputs, Sum<T>* out) {
  const std::int64_t* const src = edges.src.data();
  const std::int64_t* const bounds = edges.bounds.data();
  const auto [heads, channels] = inputs.shape;
  clear_rest(edges, heads, out);
  const std::int64_t last_edge = edges.bounds.back() - kEdgesAhead;
  each_destination<T>(
      edges, 0, [&, heads = heads, channels = channels](std::int64_t d, T*) GZ_INLINED {
        for (std::int64_t e = bounds[d]; e < bounds[d + 1]; ++e) {
          if (e < last_edge)
            prefetch_row(inputs.sources[src[e + kEdgesAhead]], inputs.shape.size());
          for (std::int64_t h = 0; h < heads; ++h) {
            const T* const a = inputs.sources[src[e]] + h * channels;
            const T* const b = inputs.destinations[d] + h * channels;
            const Sum<T>* const weight = inputs.attention + h * channels;
            const Sum<T> slope = inputs.slope;
            out[e * heads + h] = sum_over<Sum<T>>(channels, [&](std::int64_t j) GZ_INLINED {
              const Sum<T> sum = widen(a[j]) + widen(b[j]);
              return weight[j] * (sum > 0 ? sum : sum * slope);
            });
          }
        }
      });
}

template <class T>
void neighbor_score_backward(const GroupedEdges& edges, const ScoreInputs<T>& inputs,
                             const Sum<T>* grad, T* sources, T* destinations, Sum<T>* attention) {
  backward_at_destinations(edges, inputs, grad, destinations, attention);
  using S = Sum<T>;
  const auto [heads, channels] = inputs.shape;
  const std::int64_t size = inputs.shape.size();
  const auto add = [&, heads = heads, channels = channels](std::int64_t s, const OutEdges& run,
                                                           std::int64_t begin, std::int64_t end,
                                                           S* to) GZ_INLINED {
    S* const none = nullptr;
    std::fill_n(to, size, S{0});
    for (std::int64_t i = begin; i < end; ++i) {
      const auto [dst, edge] = run.edges[i];
      const std::int64_t ahead = run.ahead(i);
      if (ahead >= 0) prefetch_row(inputs.destinations[ahead], size);
      for (std::int64_t h = 0; h < heads; ++h) {
        const std::int64_t at = h * channels;
        add_grads<false>(channels, inputs.sources[s] + at, inputs.destinations[dst] + at,
                         inputs.attention + at, grad[edge * heads + h], inputs.slope, to + at,
                         none);
      }
    }
    store_row<T>(to, size, sources + s * size);
  };
  EdgesBySource(edges).each_source<S>(size, add);
}

#define GZ_NEIGHBOR_SCORE(T)                                                            \
  template void neighbor_score<T>(const GroupedEdges&, const ScoreInputs<T>&, Sum<T>*); \
  template void neighbor_score_backward<T>(const GroupedEdges&, const ScoreInputs<T>&,  \
                                           const Sum<T>*, T*, T*, Sum<T>*);
GZ_FOR_NUMBERS(GZ_NEIGHBOR_SCORE)

}  // namespace gz
