// One step of many walks over one edge type.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "arrays/buffer.h"
#include "base/rng.h"
#include "sampling/read_csc.h"
#include "sampling/walks.h"
#include "sampling/weighted.h"

namespace gz {

// In place of a slot: the walk ends; it goes to its start.
inline constexpr std::int64_t kWalkEnd = -1;
inline constexpr std::int64_t kWalkRestart = -2;
// Candidates that may be rejected before all neighbours are weighed: p and q can be such that
// hardly one is ever taken.
inline constexpr int kMostRejected = 4096;

// A number in [0, 1).
inline double fraction(CounterRng& rng) {
  return static_cast<double>(rng.next() >> 11) * 0x1.0p-53;
}

// Numbers that node2vec takes a candidate by: a uniform one has to be below.
struct WalkBias {
  double back, near, far, least;

  static WalkBias of(const WalkRequest& request) {
    const double back = 1 / request.p, far = 1 / request.q;
    const double most = std::max({back, 1.0, far});
    return {back / most, 1 / most, far / most, std::min({back, 1.0, far}) / most};
  }
};

// Some walks on their way. They own what guarded loops use.
struct WalkGroup {
  WalkGroup(std::int64_t size, const WalkRequest& request)
      : node(size),
        slot(size),
        source(size),
        live(size),
        open(size),
        earliest(request.is_timed() ? size : 0),
        latest(earliest.size()),
        before(request.is_biased() ? size : 0),
        low(before.size()),
        high(before.size()),
        asked(before.size()),
        is_near(before.size()),
        rng(size),
        chance(before.size()) {}

  // Bytes of one of them where neighbours are read, with what is looked up for it.
  static std::int64_t bytes_each(const WalkRequest& request) {
    const int words = 8 + (request.is_timed() ? 2 : 0) + (request.is_biased() ? 9 : 0);
    return words * static_cast<std::int64_t>(sizeof(std::int64_t));
  }

  Buffer<std::int64_t> node;              // where each is
  Buffer<std::int64_t> slot, source;      // of the edge it tries, and where that leads
  Buffer<std::int64_t> live, open;        // walks that go on; that have no edge yet
  Buffer<std::int64_t> earliest, latest;  // where edges have times: which they may have
  // For node2vec: where each was, -1: nowhere; bounds of a search; walks that look a node up.
  Buffer<std::int64_t> before, low, high, asked;
  Buffer<char> is_near;  // whether that node is a neighbour of the one before
  Buffer<CounterRng> rng;
  Buffer<double> chance;  // compared with a candidate's probability
};

// One edge type, as a group steps over it.
class WalkStepper {
 public:
  WalkStepper(const SampledEdgeType& type, bool is_sorted, const WalkRequest& request,
              const std::function<void()>& checkpoint)
      : type_(type),
        csc_(type.csc),
        is_sorted_(is_sorted),
        request_(request),
        bias_(WalkBias::of(request)),
        is_biased_(request.is_biased()),
        checkpoint_(checkpoint) {}

  // Takes one step of the group's live walks: slot and source of each. Raises FormatError where
  // something is damaged.
  void step(WalkGroup& group, std::int64_t num_live) {
    std::int64_t* const open = group.open.data();
    std::copy_n(group.live.data(), num_live, open);
    std::int64_t left = num_live;
    for (int round = 0; left > 0; ++round) {
      guarded([&] { choose(group, open, left, round == 0); });
      if (bad_indptr_ >= 0) throw_bad_indptr(csc_, bad_indptr_);
      fetch(group.slot.data(), group.source.data(), open, left);
      check(group, open, left);
      if (!is_biased_) return;
      left = reject(group, open, left);
      if (round < kMostRejected) continue;
      for (std::int64_t j = 0; j < left; ++j) weigh_all(group, open[j]);
      return check(group, open, left);
    }
  }

 private:
  // Draws an edge for each of these walks. REQUIRES: runs inside guarded().
  void choose(WalkGroup& group, const std::int64_t* walks, std::int64_t count, bool is_first) {
    const EdgeOrder& order = type_.order;
    const bool is_paged = csc_.paged != nullptr;
    for (std::int64_t j = 0; j < count; ++j) {
      const std::int64_t i = walks[j];
      CounterRng& rng = group.rng[i];
      if (is_first && request_.restart > 0 && fraction(rng) < request_.restart) {
        group.slot[i] = kWalkRestart;
        continue;
      }
      const std::int64_t v = group.node[i];
      if (csc_.indptr[v] < 0 || csc_.indptr[v + 1] < csc_.indptr[v] ||
          csc_.indptr[v + 1] > csc_.num_edges) [[unlikely]] {
        bad_indptr_ = v;
        return;
      }
      const auto [first, last] = ranks_of(group, i, v);
      std::int64_t slot = kWalkEnd;
      if (order.cumulative != nullptr) {
        if (last > first) {
          WeightedSampler weighted;  // with nothing gone, it owns nothing
          const auto drawn = weighted.draw(order, rng, first, last - first, 1, true, &slot);
          slot = drawn == 0 ? kWalkEnd : order.slot(slot);
        }
      } else if (last > first) {
        slot = order.slot(
            first + static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(last - first))));
      }
      group.slot[i] = slot;
      if (is_biased_ && slot >= 0) group.chance[i] = fraction(rng);
      if (!is_paged && slot >= 0) csc_.prefetch_source(slot);
    }
  }

  // source[i] of slot[i] for these walks, where that is a slot.
  void fetch(const std::int64_t* slot, std::int64_t* source, const std::int64_t* walks,
             std::int64_t count) {
    if (csc_.paged == nullptr) {
      guarded([&] {
        for (std::int64_t j = 0; j < count; ++j) {
          const std::int64_t i = walks[j];
          if (slot[i] >= 0) source[i] = csc_.source(slot[i]);
        }
      });
      return;
    }
    std::vector<std::int64_t> wanted, found;
    wanted.reserve(static_cast<std::size_t>(count));
    for (std::int64_t j = 0; j < count; ++j) {
      if (slot[walks[j]] >= 0) wanted.push_back(slot[walks[j]]);
    }
    found.resize(wanted.size());
    read_sources(csc_, wanted, found.data(), request_.max_bytes, checkpoint_);
    std::size_t next = 0;
    for (std::int64_t j = 0; j < count; ++j) {
      if (slot[walks[j]] >= 0) source[walks[j]] = found[next++];
    }
  }

  void check(const WalkGroup& group, const std::int64_t* walks, std::int64_t count) const {
    for (std::int64_t j = 0; j < count; ++j) {
      if (group.slot[walks[j]] >= 0) check_sources(csc_, group.source.data() + walks[j], 1);
    }
  }

  // Whether a candidate is taken or rejected, as far as that is known without a look at
  // neighbourhoods.
  enum class Fate { kTaken, kRejected, kUnknown };
  Fate judge(const WalkGroup& group, std::int64_t i) const {
    if (group.slot[i] < 0 || group.before[i] < 0) return Fate::kTaken;
    const double chance = group.chance[i];
    if (chance < bias_.least) return Fate::kTaken;
    if (group.source[i] == group.before[i]) {
      return chance < bias_.back ? Fate::kTaken : Fate::kRejected;
    }
    if (chance >= std::max(bias_.near, bias_.far)) return Fate::kRejected;
    if (chance < std::min(bias_.near, bias_.far)) return Fate::kTaken;
    return Fate::kUnknown;
  }

  // Leaves the walks whose candidate is rejected; returns how many.
  std::int64_t reject(WalkGroup& group, std::int64_t* walks, std::int64_t count) {
    std::int64_t left = 0, unknown = 0;
    std::int64_t* const asked = group.asked.data();
    for (std::int64_t j = 0; j < count; ++j) {
      const Fate fate = judge(group, walks[j]);
      if (fate == Fate::kRejected) walks[left++] = walks[j];
      if (fate == Fate::kUnknown) asked[unknown++] = walks[j];
    }
    if (csc_.paged != nullptr) {
      checkpoint_();
      search(group, asked, unknown);
    } else {
      guarded([&] {
        for (std::int64_t j = 0; j < unknown; ++j) {
          const std::int64_t i = asked[j];
          group.is_near[i] = has_neighbor(group, i, group.before[i], group.source[i]);
        }
      });
    }
    for (std::int64_t j = 0; j < unknown; ++j) {
      const std::int64_t i = asked[j];
      if (group.chance[i] >= (group.is_near[i] ? bias_.near : bias_.far)) walks[left++] = i;
    }
    return left;
  }

  // The ranks of a node's edges that walk i may take. REQUIRES that its bounds were checked, and as
  // choose().
  std::pair<std::int64_t, std::int64_t> ranks_of(const WalkGroup& group, std::int64_t i,
                                                 std::int64_t v) const {
    std::int64_t first = csc_.indptr[v], last = csc_.indptr[v + 1];
    if (type_.order.times != nullptr) {
      type_.order.narrow(first, last, group.latest[i], group.earliest[i]);
    }
    return {first, last};
  }

  // Whether walk i could go from v to x. REQUIRES that it was at v.
  bool has_neighbor(const WalkGroup& group, std::int64_t i, std::int64_t v, std::int64_t x) const {
    auto [low, high] = ranks_of(group, i, v);
    if (!is_sorted_ || type_.order.times != nullptr) {
      for (; low < high; ++low) {
        if (csc_.source(type_.order.slot(low)) == x) return true;
      }
      return false;
    }
    const std::int64_t end = high;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      if (csc_.source(middle) < x) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low < end && csc_.source(low) == x;
  }

  // has_neighbor() of these walks where neighbours are read: all searches take each step together.
  // REQUIRES that neighbours ascend.
  void search(WalkGroup& group, const std::int64_t* walks, std::int64_t count) {
    std::int64_t* const low = group.low.data();
    std::int64_t* const high = group.high.data();
    guarded([&] {
      for (std::int64_t j = 0; j < count; ++j) {
        const std::int64_t i = walks[j], t = group.before[i];
        group.is_near[i] = 0;
        low[i] = csc_.indptr[t];
        high[i] = csc_.indptr[t + 1];
      }
    });
    Buffer<std::int64_t> middle(group.rng.size()), found(group.rng.size());
    std::vector<std::int64_t> going(walks, walks + count);
    while (!going.empty()) {
      std::erase_if(going, [&](std::int64_t i) { return group.is_near[i] || low[i] >= high[i]; });
      for (const std::int64_t i : going) middle[i] = low[i] + (high[i] - low[i]) / 2;
      fetch(middle.data(), found.data(), going.data(), std::ssize(going));
      for (const std::int64_t i : going) {
        const std::int64_t x = group.source[i];
        group.is_near[i] = found[i] == x;
        (found[i] < x ? low[i] : high[i]) = middle[i] + (found[i] < x ? 1 : 0);
      }
    }
  }

  // Draws among all neighbours by what each weighs.
  void weigh_all(WalkGroup& group, std::int64_t i) {
    const EdgeOrder& order = type_.order;
    const std::int64_t t = group.before[i];
    const std::vector<std::int64_t> slots = slots_of(group, i, group.node[i]);
    const std::vector<std::int64_t> sources = sources_of(slots);
    std::vector<std::int64_t> near = sources_of(slots_of(group, i, t));
    std::sort(near.begin(), near.end());
    std::vector<double> weights;
    for (std::size_t k = 0; k < slots.size(); ++k) {
      const std::int64_t x = sources[k];
      const bool is_near = std::binary_search(near.begin(), near.end(), x);
      weights.push_back(x == t ? bias_.back : is_near ? bias_.near : bias_.far);
    }
    guarded([&] {
      if (order.cumulative == nullptr) return;
      const std::int64_t first = ranks_of(group, i, group.node[i]).first;
      for (std::size_t k = 0; k < weights.size(); ++k) {
        const std::int64_t rank = first + static_cast<std::int64_t>(k);
        weights[k] *= static_cast<double>(order.weight(rank));
      }
    });
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    double at = fraction(group.rng[i]) * total;
    std::size_t taken = 0;
    for (std::size_t k = 0; k < weights.size(); ++k) {
      if (weights[k] > 0) taken = k;
      if (at < weights[k]) break;
      at -= weights[k];
    }
    group.slot[i] = slots[taken];
    group.source[i] = sources[taken];
  }

  // Edges of a node that walk i may take, by rank. REQUIRES that it was there.
  std::vector<std::int64_t> slots_of(const WalkGroup& group, std::int64_t i, std::int64_t v) const {
    std::pair<std::int64_t, std::int64_t> ranks;
    guarded([&] { ranks = ranks_of(group, i, v); });
    std::vector<std::int64_t> slots(static_cast<std::size_t>(ranks.second - ranks.first));
    std::iota(slots.begin(), slots.end(), ranks.first);
    guarded([&] {
      for (std::int64_t& slot : slots) slot = type_.order.slot(slot);
    });
    return slots;
  }

  std::vector<std::int64_t> sources_of(const std::vector<std::int64_t>& slots) {
    std::vector<std::int64_t> sources(slots.size()), all(slots.size());
    std::iota(all.begin(), all.end(), std::int64_t{0});
    fetch(slots.data(), sources.data(), all.data(), std::ssize(all));
    return sources;
  }

  const SampledEdgeType& type_;
  const Csc& csc_;
  const bool is_sorted_;
  const WalkRequest& request_;
  const WalkBias bias_;
  const bool is_biased_;
  const std::function<void()>& checkpoint_;
  std::int64_t bad_indptr_ = -1;  // a node whose neighbourhood was found damaged
};

}  // namespace gz
