#include "sampling/excluded_edges.h"

#include <string>
#include <type_traits>

#include "base/errors.h"
#include "io/fault_guard.h"
#include "sampling/read_csc.h"

namespace gz {
ExcludedEdges::ExcludedEdges(const SampledEdgeType& type, const ExcludedPairs& pairs, int threads)
    : type_(type), is_timed_(!pairs.times.empty() && type.order.times != nullptr) {
  const std::size_t count = pairs.src.size();
  const std::string name = "excluded edges of " + type.csc.name;
  check_range((name + ": src").c_str(), "node", std::span(pairs.src), type.csc.num_src);
  check_range((name + ": dst").c_str(), "node", std::span(pairs.dst), type.csc.num_dst);
  places_.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto next = static_cast<std::uint32_t>(nodes_.size());
    const auto place = places_.find_or_insert(static_cast<std::uint64_t>(pairs.dst[i]), next);
    if (place == next) nodes_.push_back(pairs.dst[i]);
    times_.emplace_back(key(place, pairs.src[i]), is_timed_ ? pairs.times[i] : 0);
  }
  std::sort(times_.begin(), times_.end());
  times_.erase(std::unique(times_.begin(), times_.end()), times_.end());
  for (const auto& [pair, time] : times_) {
    if (keys_.empty() || keys_.back() != pair) keys_.push_back(pair);
  }
  pairs_.reserve(keys_.size());
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    pairs_.find_or_insert(keys_[i], static_cast<std::uint32_t>(i));
  }
  ranges_.look_up(type.csc, nodes_, threads, 0);
}

void ExcludedEdges::find() {
  with_sources(type_.csc, [&](const auto& sources) {
    std::int64_t count = std::ssize(keys_);  // more where edges are parallel
    do {
      found_.resize(count);
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
  std::size_t last = 0;
  for (std::int64_t place = 0; place < ranges_.size(); ++place) {
    const std::int64_t begin = ranges_.first[place], end = begin + ranges_.degree[place];
    const std::size_t first = last;
    while (last < keys_.size() && keys_[last] < key(place + 1, 0)) ++last;
    for (std::int64_t slot = begin; last - first > kFew && slot < end; ++slot) {
      const std::uint32_t pair = pairs_.find(key(place, sources[slot]));
      if (pair != IdMap<std::uint64_t>::kNone) add(slot, place, pair);
    }
    for (std::int64_t from = begin; last - first <= kFew && from < end; from += kBlock) {
      const std::int64_t to = std::min(from + kBlock, end);
      for (std::size_t pair = first; pair < last; ++pair) {
        const auto source = static_cast<std::int64_t>(keys_[pair] - key(place, 0));
        std::int32_t hits = 0;
        for (std::int64_t slot = from; slot < to; ++slot) hits += equals(slot, source);
        for (std::int64_t slot = from; hits > 0; ++slot) {
          if (!equals(slot, source)) continue;
          add(slot, place, static_cast<std::int64_t>(pair));
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
  const std::int64_t* const slots = type_.order.slots;
  guarded([&] {
    for (std::int64_t j = 0; j < count; ++j) {
      rank[j] = found_.slot[j];
      if (slots != nullptr) {
        const std::int64_t* const begin = slots + ranges_.first[found_.col[j]];
        rank[j] = std::find(begin, begin + ranges_.degree[found_.col[j]], rank[j]) - slots;
      }
      time[j] = is_timed_ ? type_.order.times[rank[j]] : 0;
    }
  });
  for (std::int64_t j = 0; j < count; ++j) {
    const std::pair at{keys_[static_cast<std::size_t>(found_.row[j])], time[j]};
    if (!std::binary_search(times_.begin(), times_.end(), at)) continue;
    ranks_.push_back(rank[j]);
    slots_.push_back(found_.slot[j]);
  }
  std::sort(ranks_.begin(), ranks_.end());
  std::sort(slots_.begin(), slots_.end());
  for (const std::int64_t begin : ranges_.first.span()) {
    starts_.push_back(std::lower_bound(ranks_.begin(), ranks_.end(), begin) - ranks_.begin());
  }
}

}  // namespace gz
