// Reading neighbourhoods on several threads. They may be mapped from a file that is damaged or cut
// short: errors, never a crash.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "arrays/buffer.h"
#include "arrays/parallel.h"
#include "base/errors.h"
#include "io/fault_guard.h"
#include "sampling/graph.h"
#include "sampling/sample_window.h"

namespace gz {

// How far ahead reads are prefetched. A core by itself looks less far ahead than memory can serve:
// at 24 a random read took 5 ns, at 128 it takes 2 to 4.
inline constexpr std::int64_t kPrefetchAhead = 128;
inline constexpr std::int64_t kNodesAhead = 8;  // where each node is several reads
inline constexpr std::int64_t kFrontierGrain = 2048;
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

namespace detail {

// Bounds as they lie in a file or an array.
struct PlainBounds {
  const std::int64_t* indptr;

  std::int64_t operator[](std::int64_t node) const noexcept { return indptr[node]; }
  void prefetch(std::int64_t node) const noexcept { __builtin_prefetch(indptr + node); }
};

template <class Bounds, class Visit>
void visit_ranges(const Csc& csc, const Bounds& bounds, const std::int64_t* nodes,
                  std::int64_t count, int threads, const Visit& visit) {
  std::atomic<std::int64_t> bad{-1};
  parallel_for(count, kFrontierGrain, threads, [&](std::int64_t from, std::int64_t to) {
    const auto announce = [&](std::int64_t i) {
      bounds.prefetch(nodes[i]);
      bounds.prefetch(nodes[i] + 1);  // one in eight pairs lies on two lines
    };
    const auto look_up = [&](std::int64_t i) {
      const std::int64_t start = bounds[nodes[i]];
      const std::int64_t stop = bounds[nodes[i] + 1];
      // A damaged indptr must not send the sampler out of its arrays.
      if (start < 0 || stop < start || stop > csc.num_edges) [[unlikely]] {
        bad.store(nodes[i], std::memory_order_relaxed);
      } else if (csc.starts != nullptr) {
        visit(i, csc.starts.get()[nodes[i]], csc.starts.get()[nodes[i]] + (stop - start));
      } else {
        visit(i, start, stop);
      }
    };
    guarded([&] { visit_announced(from, to, announce, look_up); });
  });
  if (const std::int64_t node = bad.load(); node >= 0) throw_bad_indptr(csc, node);
}

}  // namespace detail

// Calls visit(i, start, stop) with the range of slots of each nodes[0 … count), on any thread.
// REQUIRES: visit owns nothing, see guarded(). Raises FormatError for a range outside the edges.
template <class Visit>
void visit_ranges(const Csc& csc, const std::int64_t* nodes, std::int64_t count, int threads,
                  const Visit& visit) {
  if (csc.bounds != nullptr) {
    detail::visit_ranges(csc, *csc.bounds, nodes, count, threads, visit);
  } else {
    detail::visit_ranges(csc, detail::PlainBounds{csc.indptr}, nodes, count, threads, visit);
  }
}

// Turns counts in offset[1 … count] into running sums; returns the last.
inline std::int64_t sum_offsets(std::int64_t* offset, std::int64_t count) {
  offset[0] = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (__builtin_add_overflow(offset[i + 1], offset[i], &offset[i + 1])) throw_too_many();
  }
  return offset[count];
}

// Which neighbours of some nodes there are to take, and where those taken go.
struct Ranges {
  Buffer<std::int64_t> first;   // [node]: rank of the first
  Buffer<std::int64_t> degree;  // [node]
  Buffer<std::int64_t> offset;  // [node + 1]

  std::int64_t size() const noexcept { return degree.size(); }
  void resize(std::int64_t count) {
    first.resize(count);
    degree.resize(count);
    offset.resize(count + 1);
  }
  void set(std::int64_t i, std::int64_t start, std::int64_t n, std::int64_t taken) noexcept {
    first[i] = start;
    degree[i] = n;
    offset[i + 1] = taken;
  }

  // Takes all neighbours of `nodes`, at most `most` of each; returns how many that are.
  std::int64_t look_up(const Csc& csc, std::span<const std::int64_t> nodes, int threads,
                       std::int64_t most) {
    const std::int64_t count = csc.num_edges == 0 ? 0 : std::ssize(nodes);
    resize(count);
    visit_ranges(csc, nodes.data(), count, threads,
                 [this, most](std::int64_t i, std::int64_t start, std::int64_t stop) {
                   set(i, start, stop - start, std::min(stop - start, most));
                 });
    return sum_offsets(offset.data(), count);
  }
};

// Raises FormatError where the lists of nodes [begin, end) do not follow each other; returns the
// first slot and the one behind the last.
inline std::pair<std::int64_t, std::int64_t> check_lists(const Csc& csc, std::int64_t begin,
                                                         std::int64_t end) {
  std::int64_t bad = -1, first = 0, at = 0;
  guarded([&] {
    first = at = csc.indptr[begin];
    if (at < 0) bad = begin;
    for (std::int64_t node = begin; node < end && bad < 0; ++node) {
      const std::int64_t next = csc.indptr[node + 1];
      if (next < at || next > csc.num_edges) bad = node;
      at = next;
    }
  });
  if (bad >= 0) throw_bad_indptr(csc, bad);
  return {first, at};
}

// Calls visit(node, source, slot) for the in-edges of nodes [begin, end). REQUIRES lists that were
// checked, and of `visit` that it owns nothing. Raises FormatError for a source that is no node.
template <class Visit>
void visit_edges(const Csc& csc, std::int64_t begin, std::int64_t end, const Visit& visit) {
  const auto num_src = static_cast<std::uint64_t>(csc.num_src);
  std::int64_t bad = 0;
  bool is_bad = false;
  guarded([&] {
    for (std::int64_t node = begin; node < end; ++node) {
      const std::int64_t last = csc.indptr[node + 1];
      for (std::int64_t slot = csc.indptr[node]; slot < last; ++slot) {
        const std::int64_t source = csc.source(slot);
        if (static_cast<std::uint64_t>(source) >= num_src) {
          bad = source;
          is_bad = true;
          return;
        }
        visit(node, source, slot);
      }
    }
  });
  if (is_bad) throw_bad_index(csc, bad);
}

// visit_edges() for many nodes, whose lists it checks, front to back: adds what that takes of a map
// to `mapped`, and has the map forgotten where this comes to more than `max_mapped`.
template <class Visit>
void sweep(const Csc& csc, std::int64_t begin, std::int64_t end, SlotsAhead& ahead,
           std::atomic<std::int64_t>& mapped, std::int64_t max_mapped, const Visit& visit) {
  const std::int64_t step = chunk_sizes.summed_nodes;
  for (; begin < end; begin += step) {
    const std::int64_t stop = std::min(begin + step, end);
    const auto [first, last] = check_lists(csc, begin, stop);
    ahead.at(first);
    visit_edges(csc, begin, stop, visit);
    const std::int64_t seen = (last - first) * csc.index_bytes + (stop - begin) * 8;
    if (csc.file != nullptr && mapped.fetch_add(seen) + seen > max_mapped) {
      mapped = 0;
      csc.file->forget_pages();
    }
  }
}

namespace detail {

// REQUIRES: runs inside guarded().
inline void ranks_to_slots(const EdgeOrder& order, std::int64_t* slot, std::int64_t from,
                           std::int64_t to) {
  const std::int64_t* const slots = order.slots;
  if (slots == nullptr) return;
  visit_announced(
      from, to, [&](std::int64_t j) { __builtin_prefetch(slots + slot[j]); },
      [&](std::int64_t j) { slot[j] = slots[slot[j]]; });
}

// Neighbours as they lie in a file or an array.
template <class Index>
struct PlainSources {
  const Index* indices;

  explicit PlainSources(const Csc& csc) : indices(static_cast<const Index*>(csc.indices)) {}
  std::int64_t operator[](std::int64_t slot) const noexcept {
    return static_cast<std::int64_t>(indices[slot]);
  }
  void prefetch(std::int64_t slot) const noexcept { __builtin_prefetch(indices + slot); }
};

}  // namespace detail

// Ranks in slot[0 … count) to slots.
inline void find_slots(const SampledEdgeType& type, std::int64_t* slot, std::int64_t count,
                       int threads) {
  parallel_for(count, kEdgeGrain, threads, [&](std::int64_t from, std::int64_t to) {
    guarded([&] { detail::ranks_to_slots(type.order, slot, from, to); });
  });
}

// Calls call(sources), where sources[slot] is the neighbour in a slot. REQUIRES that samplers do
// not ask for sources.
template <class Call>
void with_sources(const Csc& csc, const Call& call) {
  if (csc.packed != nullptr) {
    call(*csc.packed);
  } else if (csc.index_bytes == 4) {
    call(detail::PlainSources<std::uint32_t>(csc));
  } else {
    call(detail::PlainSources<std::int64_t>(csc));
  }
}

// Ranks to slots, and the neighbours in them to `source`. Slots of a paged edge type are added to
// `wanted` instead, for whoever reads them.
inline void fetch_sources(const SampledEdgeType& type, std::int64_t* slot, std::int64_t* source,
                          std::int64_t count, int threads, std::vector<SourceList>& wanted) {
  if (type.csc.is_asked()) {
    find_slots(type, slot, count, threads);
    wanted.push_back(
        {&type.csc, std::span<const std::int64_t>(slot, static_cast<std::size_t>(count)), source});
    return;
  }
  with_sources(type.csc, [&](const auto& sources) {
    parallel_for(count, kEdgeGrain, threads, [&](std::int64_t from, std::int64_t to) {
      guarded([&] {
        detail::ranks_to_slots(type.order, slot, from, to);
        visit_announced(
            from, to, [&](std::int64_t j) { sources.prefetch(slot[j]); },
            [&](std::int64_t j) { source[j] = sources[slot[j]]; });
      });
    });
  });
}

// Raises FormatError unless all of source[0 … count) are nodes that edges may come from.
inline void check_sources(const Csc& csc, const std::int64_t* source, std::int64_t count) {
  const std::span all(source, static_cast<std::size_t>(count));
  const auto bad = find_outside(all, csc.num_src);
  if (bad != all.end()) throw_bad_index(csc, *bad);
}

}  // namespace gz
