// Which of its neighbours each frontier node takes: the draws of one hop over one edge type.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>

#include "arrays/parallel.h"
#include "base/constants.h"
#include "base/rng.h"
#include "sampling/edge_order.h"
#include "sampling/read_csc.h"
#include "sampling/subset.h"
#include "sampling/weighted.h"

namespace gz {

// Marks a place for which no edge of a weight above 0 was left.
inline constexpr std::int64_t kMissing = -1;

// Ranges that a hop draws from, and where it writes. Node i has the ranks first[i] … + degree[i]
// and takes offset[i + 1] - offset[i] of them: min(degree, k), or k with replacement.
struct Draw {
  const EdgeOrder& order;
  const Ranges& in;
  std::int64_t k;  // -1: all
  bool replace;
  std::uint64_t key;    // node i draws from the stream of this and i
  std::int64_t col;     // what stands for node 0 in cols
  std::int64_t* ranks;  // [as many as are taken]
  std::int64_t* cols;   // [as many as are taken]
};

namespace detail {

// min(degree, K) of each node, unrolled for each fan-out K. All K are written whatever the degree,
// so that no loop has an end to guess; the next node writes over what is too much, and the last
// ones of a range draw aside.
template <int K>
void draw_unrolled(const Draw& draw, std::int64_t from, std::int64_t to) {
  const std::int64_t *const first = draw.in.first.data(), *const degree = draw.in.degree.data(),
                            *const offset = draw.in.offset.data();
  const std::int64_t end = offset[to];
  for (std::int64_t i = from; i < to; ++i) {
    const std::int64_t at = offset[i];
    const bool aside = at + K > end;
    std::int64_t room[K];
    std::int64_t* const out = aside ? room : draw.ranks + at;
    if (degree[i] <= K) {
      for (std::int64_t j = 0; j < K; ++j) out[j] = first[i] + j;
    } else {
      CounterRng rng(draw.key, static_cast<std::uint64_t>(i));
      draw_few(rng, degree[i], K, first[i], out);
    }
    if (aside) {
      std::copy_n(room, end - at, draw.ranks + at);
      std::fill_n(draw.cols + at, end - at, draw.col + i);
    } else {
      std::fill_n(draw.cols + at, K, draw.col + i);
    }
  }
}

// False where the fan-out has no kernel of its own.
inline bool draw_unrolled(const Draw& draw, std::int64_t from, std::int64_t to) {
  return with_constant<1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16>(
      draw.k, [&](auto k) { draw_unrolled<k>(draw, from, to); });
}

// Uniform draws for any fan-out, with replacement or not.
inline void draw_uniform(const Draw& draw, std::int64_t from, std::int64_t to) {
  SubsetSampler subset;
  const bool replace = draw.replace && draw.k >= 0;
  for (std::int64_t i = from; i < to; ++i) {
    const std::int64_t first = draw.in.first[i];
    const std::int64_t degree = draw.in.degree[i];
    const std::int64_t wanted = draw.in.offset[i + 1] - draw.in.offset[i];
    std::int64_t* const out = draw.ranks + draw.in.offset[i];
    std::fill_n(draw.cols + draw.in.offset[i], wanted, draw.col + i);
    CounterRng rng(draw.key, static_cast<std::uint64_t>(i));
    if (replace) {
      for (std::int64_t j = 0; j < wanted; ++j) {
        out[j] = first + static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(degree)));
      }
    } else if (wanted == degree) {
      for (std::int64_t j = 0; j < wanted; ++j) out[j] = first + j;
    } else {
      subset.draw(rng, degree, wanted, first, out);
    }
  }
}

// One node's draws in proportion to weight among its `n` ranks but `gone`; false where weights of 0
// left places empty, marked kMissing.
inline bool draw_weighted(const Draw& draw, WeightedSampler& weighted, std::int64_t i,
                          std::int64_t n, std::span<const std::int64_t> gone = {}) {
  const std::int64_t wanted = draw.in.offset[i + 1] - draw.in.offset[i];
  if (wanted == 0) return true;
  std::int64_t* const out = draw.ranks + draw.in.offset[i];
  CounterRng rng(draw.key, static_cast<std::uint64_t>(i));
  const std::int64_t drawn =
      weighted.draw(draw.order, rng, draw.in.first[i], n, wanted, draw.replace, out, gone);
  std::fill(out + drawn, out + wanted, kMissing);
  return drawn == wanted;
}

inline bool draw_weighted(const Draw& draw, std::int64_t from, std::int64_t to) {
  WeightedSampler weighted;
  bool complete = true;
  for (std::int64_t i = from; i < to; ++i) {
    const std::int64_t begin = draw.in.offset[i], end = draw.in.offset[i + 1];
    std::fill(draw.cols + begin, draw.cols + end, draw.col + i);
    if (i + kNodesAhead < to) {
      draw.order.prefetch_weights(draw.in.first[i + kNodesAhead], draw.in.degree[i + kNodesAhead]);
    }
    complete = draw_weighted(draw, weighted, i, draw.in.degree[i]) && complete;
  }
  return complete;
}

}  // namespace detail

// Fills ranks and cols. False where some ranks are kMissing.
inline bool draw_ranks(const Draw& draw, int threads) {
  std::atomic<bool> complete{true};
  parallel_for(draw.in.size(), kFrontierGrain, threads, [&](std::int64_t from, std::int64_t to) {
    if (draw.order.cumulative != nullptr && draw.k >= 0) {
      if (!detail::draw_weighted(draw, from, to)) complete.store(false, std::memory_order_relaxed);
    } else if (draw.replace || !detail::draw_unrolled(draw, from, to)) {
      detail::draw_uniform(draw, from, to);
    }
  });
  return complete.load();
}

// After draw_ranks(): makes the draws of node i be of its ranks but `gone`, which rise, and which
// its degree does not count. False where some ranks are kMissing.
inline bool draw_without(const Draw& draw, std::int64_t i, std::span<const std::int64_t> gone) {
  if (draw.order.cumulative != nullptr && draw.k >= 0) {
    WeightedSampler weighted;
    const auto n = draw.in.degree[i] + static_cast<std::int64_t>(gone.size());
    return detail::draw_weighted(draw, weighted, i, n, gone);
  }
  for (std::int64_t j = draw.in.offset[i]; j < draw.in.offset[i + 1]; ++j) {
    for (const std::int64_t rank : gone) draw.ranks[j] += draw.ranks[j] >= rank;
  }
  return true;
}

}  // namespace gz
