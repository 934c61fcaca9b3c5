// Reading neighbourhoods on several threads. What is read may be mapped from a file that is damaged
// or cut short: errors, never a crash.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/parallel.h"
#include "io/fault_guard.h"
#include "sampling/graph.h"
#include "sampling/id_map.h"
#include "sampling/sample.h"

namespace gz {

// How far ahead reads are announced. As many as memory serves at a time, which is more than a core
// foresees: at 24 a random read took 5 ns, at 128 it takes 2 to 4.
inline constexpr std::int64_t kPrefetchAhead = 128;
inline constexpr std::int64_t kRanksAhead = 32;  // within one neighbourhood
inline constexpr std::int64_t kNodesAhead = 8;   // where each node is several reads
inline constexpr std::int64_t kFrontierGrain = 2048;
inline constexpr std::int64_t kInduceGrain = 256;
inline constexpr std::int64_t kEdgeGrain = 16384;

// Calls visit(i) for all i in [from, to), announce(i) well before it.
template <class Announce, class Visit>
void visit_announced(std::int64_t from, std::int64_t to, const Announce& announce,
                     const Visit& visit) {
  const std::int64_t ready = std::min(from + kPrefetchAhead, to);
  for (std::int64_t i = from; i < ready; ++i) announce(i);
  for (std::int64_t i = from; i < to; ++i) {
    if (i + kPrefetchAhead < to) announce(i + kPrefetchAhead);
    visit(i);
  }
}

// Calls visit(i, start, stop) with the range of slots of each nodes[0 … count), on any thread.
// REQUIRES: visit owns nothing, see guarded(). Raises FormatError for a range outside the edges.
template <class Visit>
void visit_ranges(const Csc& csc, const std::int64_t* nodes, std::int64_t count, int threads,
                  const Visit& visit) {
  std::atomic<std::int64_t> bad{-1};
  parallel_for(count, kFrontierGrain, threads, [&](std::int64_t from, std::int64_t to) {
    const auto announce = [&](std::int64_t i) {
      __builtin_prefetch(csc.indptr + nodes[i]);
      __builtin_prefetch(csc.indptr + nodes[i] + 1);  // one in eight pairs lies on two lines
    };
    const auto look_up = [&](std::int64_t i) {
      const std::int64_t start = csc.indptr[nodes[i]];
      const std::int64_t stop = csc.indptr[nodes[i] + 1];
      // A damaged indptr must not send the sampler out of its arrays.
      if (start < 0 || stop < start || stop > csc.num_edges) [[unlikely]] {
        bad.store(nodes[i], std::memory_order_relaxed);
      } else {
        visit(i, start, stop);
      }
    };
    guarded([&] { visit_announced(from, to, announce, look_up); });
  });
  if (const std::int64_t node = bad.load(); node >= 0) throw_bad_indptr(csc, node);
}

// Turns counts in offset[1 … count] into running sums; returns the last.
inline std::int64_t sum_offsets(std::int64_t* offset, std::int64_t count) {
  offset[0] = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (__builtin_add_overflow(offset[i + 1], offset[i], &offset[i + 1])) throw_too_many();
  }
  return offset[count];
}

namespace detail {

template <class Index>
void fetch_sources(const SampledEdgeType& type, std::int64_t* slot, std::int64_t* source,
                   std::int64_t count, int threads) {
  const auto* const indices = static_cast<const Index*>(type.csc.indices);
  const std::int64_t* const slots = type.order.slots;
  parallel_for(count, kEdgeGrain, threads, [&](std::int64_t from, std::int64_t to) {
    guarded([&] {
      if (slots != nullptr) {
        visit_announced(
            from, to, [&](std::int64_t j) { __builtin_prefetch(slots + slot[j]); },
            [&](std::int64_t j) { slot[j] = slots[slot[j]]; });
      }
      visit_announced(
          from, to, [&](std::int64_t j) { __builtin_prefetch(indices + slot[j]); },
          [&](std::int64_t j) { source[j] = static_cast<std::int64_t>(indices[slot[j]]); });
    });
  });
}

// Calls visit(col, how many before it at this col, slot, row) for every edge among sampled nodes.
template <class Positions, class Visit>
void visit_induced(const SampledEdgeType& type, const std::int64_t* first,
                   const std::int64_t* degree, std::int64_t count, int threads,
                   const Positions& positions, const Visit& visit) {
  std::atomic<bool> outside{false};
  std::atomic<std::int64_t> bad{0};
  const auto visit_range = [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t i = from; i < to; ++i) {
      if (i + kNodesAhead < to) type.csc.prefetch_source(first[i + kNodesAhead]);
      std::int64_t found = 0;
      const std::int64_t last = first[i] + degree[i];
      for (std::int64_t rank = first[i]; rank < last; ++rank) {
        if (rank + kRanksAhead < last) {
          positions.prefetch(i, type.csc.source(type.order.slot(rank + kRanksAhead)));
        }
        const std::int64_t slot = type.order.slot(rank);
        const std::int64_t source = type.csc.source(slot);
        if (static_cast<std::uint64_t>(source) >= static_cast<std::uint64_t>(type.csc.num_src)) {
          bad.store(source, std::memory_order_relaxed);
          outside.store(true, std::memory_order_relaxed);
          return;
        }
        const std::uint32_t at = positions.find(i, source);
        if (at != IdMap<std::uint32_t>::kNone) visit(i, found++, slot, at);
      }
    }
  };
  parallel_for(count, kInduceGrain, threads, [&](std::int64_t from, std::int64_t to) {
    guarded([&] { visit_range(from, to); });
  });
  if (outside.load()) throw_bad_index(type.csc, bad.load());
}

}  // namespace detail

// Ranks in slot[0 … count) to slots, and the neighbours in them.
inline void fetch_sources(const SampledEdgeType& type, std::int64_t* slot, std::int64_t* source,
                          std::int64_t count, int threads) {
  if (type.csc.index_bytes == 4) {
    detail::fetch_sources<std::uint32_t>(type, slot, source, count, threads);
  } else {
    detail::fetch_sources<std::int64_t>(type, slot, source, count, threads);
  }
}

// Sets `edges` to all that join sampled nodes, grouped by destination. Destination i of `count` has
// the ranks first[i] … + degree[i]; positions.find(i, source) is where a neighbour of it is, or
// kNone, and positions.prefetch(i, source) announces that; offset [count + 1] is room to work in.
// REQUIRES: neither owns anything, see guarded().
template <class Positions>
void induce(const SampledEdgeType& type, const std::int64_t* first, const std::int64_t* degree,
            std::int64_t* offset, std::int64_t count, int threads, const Positions& positions,
            Sample::Edges& edges) {
  // Counted first, then written: nothing may grow where a fault can interrupt.
  std::fill_n(offset, count + 1, 0);
  detail::visit_induced(type, first, degree, count, threads, positions,
                        [&](std::int64_t col, std::int64_t found, std::int64_t, std::uint32_t) {
                          offset[col + 1] = found + 1;
                        });
  edges.resize(sum_offsets(offset, count));
  detail::visit_induced(
      type, first, degree, count, threads, positions,
      [&](std::int64_t col, std::int64_t found, std::int64_t slot, std::uint32_t row) {
        const std::int64_t at = offset[col] + found;
        edges.row[at] = row;
        edges.col[at] = col;
        edges.slot[at] = slot;
      });
}

}  // namespace gz
