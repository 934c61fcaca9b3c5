#include "sampling/excluded_edges.h"

#include <type_traits>
#include <utility>

#include "base/errors.h"
#include "io/fault_guard.h"
#include "sampling/read_csc.h"

namespace gz {
namespace {

void check_ends(std::span<const std::int64_t> nodes, std::int64_t num_nodes, const Csc& csc) {
  const auto bad = find_outside(nodes, num_nodes);
  if (bad != nodes.end()) {
    throw_out_of_range(text_of("excluded edges of ", csc.name), "node", *bad, num_nodes);
  }
}

}  // namespace

ExcludedEdges::ExcludedEdges(const SampledEdgeType& type, const ExcludedPairs& pairs, int threads)
    : type_(type), is_timed_(!pairs.times.empty() && type.order.times != nullptr) {
  const std::size_t count = pairs.src.size();
  check_ends(pairs.src, type.csc.num_src, type.csc);
  check_ends(pairs.dst, type.csc.num_dst, type.csc);
  places_.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto next = static_cast<std::uint32_t>(nodes_.size());
    const auto place = places_.find_or_insert(static_cast<std::uint64_t>(pairs.dst[i]), next);
    if (place == next) nodes_.push_back(pairs.dst[i]);
    times_.emplace_back(wanted().key(place, pairs.src[i]), is_timed_ ? pairs.times[i] : 0);
  }
  std::sort(times_.begin(), times_.end());
  times_.erase(std::unique(times_.begin(), times_.end()), times_.end());
  bounds_of_firsts_.assign(nodes_.size() + 1, 0);
  for (std::size_t i = 0; i < times_.size(); ++i) {
    if (i > 0 && times_[i].first == times_[i - 1].first) continue;
    firsts_.push_back(i);
    bounds_of_firsts_[times_[i].first / static_cast<std::uint64_t>(type.csc.num_src) + 1] =
        firsts_.size();
  }
  const auto num_nodes = static_cast<std::int64_t>(nodes_.size());
  begin_.resize(num_nodes);
  degree_.resize(num_nodes);
  std::int64_t* const begin = begin_.data();
  std::int64_t* const degree = degree_.data();
  visit_ranges(type.csc, nodes_.data(), num_nodes, threads,
               [=](std::int64_t i, std::int64_t start, std::int64_t stop) {
                 begin[i] = start;
                 degree[i] = stop - start;
               });
  first_.reserve(firsts_.size());
  for (const std::size_t i : firsts_) {
    first_.find_or_insert(times_[i].first, static_cast<std::uint32_t>(i));
  }
  if (type.csc.is_asked()) stretches_.emplace(type, begin, degree, num_nodes);
}

void ExcludedEdges::find() {
  with_sources(type_.csc, [&](const auto& sources) {
    found_.resize(static_cast<std::int64_t>(firsts_.size()));  // more where edges are parallel
    std::int64_t count = 0;
    do {
      found_.resize(std::max(count, found_.slot.size()));
      guarded([&] { count = scan(sources); });
    } while (count > found_.slot.size());
    found_.resize(count);
  });
}

// Writes as many edges to found_ as there is room for; returns how many there are. Most
// destinations are those of one pair or a few: their neighbours are compared with each source in
// turn, by blocks in which mostly nothing is found.
template <class Sources>
std::int64_t ExcludedEdges::scan(const Sources& sources) noexcept {
  constexpr std::int64_t kBlock = 1024;
  constexpr std::size_t kFew = 4;
  std::int64_t count = 0;
  const auto add = [&](std::int64_t slot, std::int64_t place, std::int64_t pair) {
    if (count < found_.slot.size()) {
      found_.slot[count] = slot;
      found_.col[count] = place;
      found_.row[count] = pair;
    }
    ++count;
  };
  const auto equals = [&](std::int64_t slot, std::int64_t source) {
    if constexpr (requires { sources.indices; }) {
      return sources.indices[slot] ==
             static_cast<std::remove_cvref_t<decltype(*sources.indices)>>(source);
    } else {
      return sources[slot] == source;
    }
  };
  const Pairs pairs = wanted();
  for (std::int64_t place = 0; place < std::ssize(nodes_); ++place) {
    const std::int64_t begin = begin_[place], end = begin + degree_[place];
    const auto at = static_cast<std::size_t>(place);
    const std::size_t first = bounds_of_firsts_[at], last = bounds_of_firsts_[at + 1];
    for (std::int64_t slot = begin; last - first > kFew && slot < end; ++slot) {
      const std::uint32_t pair = pairs.find(place, sources[slot]);
      if (pair != IdMap<std::uint64_t>::kNone) add(slot, place, pair);
    }
    for (std::int64_t from = begin; last - first <= kFew && from < end; from += kBlock) {
      const std::int64_t to = std::min(from + kBlock, end);
      for (std::size_t f = first; f < last; ++f) {
        const auto pair = static_cast<std::int64_t>(firsts_[f]);
        const auto source =
            static_cast<std::int64_t>(times_[firsts_[f]].first - pairs.key(place, 0));
        std::int32_t hits = 0;
        for (std::int64_t slot = from; slot < to; ++slot) hits += equals(slot, source);
        for (std::int64_t slot = from; hits > 0; ++slot) {
          if (!equals(slot, source)) continue;
          add(slot, place, pair);
          --hits;
        }
      }
    }
  }
  return count;
}

void ExcludedEdges::settle() {
  const std::int64_t count = found_.slot.size();
  Buffer<std::int64_t> rank(count), time(count);
  guarded([&] {
    for (std::int64_t j = 0; j < count; ++j) {
      rank[j] = rank_of(found_.col[j], found_.slot[j]);
      time[j] = is_timed_ ? type_.order.times[rank[j]] : 0;
    }
  });
  std::vector<std::pair<std::int64_t, std::int64_t>> by_place;  // (place, rank)
  for (std::int64_t j = 0; j < count; ++j) {
    const std::pair at{times_[static_cast<std::size_t>(found_.row[j])].first, time[j]};
    if (!std::binary_search(times_.begin(), times_.end(), at)) continue;
    by_place.emplace_back(found_.col[j], rank[j]);
    slots_.push_back(found_.slot[j]);
  }
  std::sort(by_place.begin(), by_place.end());
  std::sort(slots_.begin(), slots_.end());
  bounds_.assign(nodes_.size() + 1, 0);
  for (const auto& [place, rank_there] : by_place) {
    ++bounds_[static_cast<std::size_t>(place) + 1];
    ranks_.push_back(rank_there);
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i) bounds_[i + 1] += bounds_[i];
}

// REQUIRES: runs inside guarded().
std::int64_t ExcludedEdges::rank_of(std::int64_t place, std::int64_t slot) const {
  const std::int64_t* const slots = type_.order.slots;
  if (slots == nullptr) return slot;
  const std::int64_t* const begin = slots + begin_[place];
  return std::find(begin, begin + degree_[place], slot) - slots;
}

}  // namespace gz
