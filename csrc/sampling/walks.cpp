#include "sampling/walks.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "arrays/parallel.h"
#include "base/chunk_sizes.h"
#include "io/fault_guard.h"
#include "sampling/rng.h"
#include "sampling/sample_window.h"
#include "sampling/weighted.h"

namespace gz {
namespace {

// Of paged neighbours more go together: what one takes on its way.
constexpr std::int64_t kWalkBytes = 256;
// What stands for a slot where a walk ends, and where it goes to its start.
constexpr std::int64_t kEnd = -1;
constexpr std::int64_t kRestart = -2;
// Candidates that may be rejected before all neighbours are weighed: p and q can be such that
// hardly one is ever taken.
constexpr int kMostRejected = 4096;

// A number in [0, 1).
double fraction(CounterRng& rng) { return static_cast<double>(rng.next() >> 11) * 0x1.0p-53; }

// What node2vec takes a candidate by: a uniform number below the one that it is compared with.
struct Bias {
  double back, near, far, least;

  static Bias of(const WalkRequest& request) {
    const double back = 1 / request.p, far = 1 / request.q;
    const double most = std::max({back, 1.0, far});
    return {back / most, 1 / most, far / most, std::min({back, 1.0, far}) / most};
  }
};

// Some walks on their way. They own what guarded loops use.
struct Group {
  explicit Group(std::int64_t size)
      : node(size),
        before(size),
        slot(size),
        source(size),
        low(size),
        high(size),
        live(size),
        open(size),
        asked(size),
        rng(static_cast<std::size_t>(size), CounterRng(0, 0)),
        chance(static_cast<std::size_t>(size)) {}

  Buffer<std::int64_t> node, before;  // where each is, and was; -1: nowhere
  Buffer<std::int64_t> slot, source;  // of the edge it tries, and where that leads
  Buffer<std::int64_t> low, high;     // of a search
  Buffer<std::int64_t> live, open,
      asked;  // walks that go on; that have no edge yet; that look one up
  std::vector<CounterRng> rng;
  std::vector<double> chance;  // what a candidate's probability is compared with
};

// One edge type, as a group steps over it.
class Stepper {
 public:
  Stepper(const SampledEdgeType& type, bool is_sorted, const WalkRequest& request,
          const std::function<void()>& checkpoint)
      : type_(type),
        csc_(type.csc),
        is_sorted_(is_sorted),
        request_(request),
        bias_(Bias::of(request)),
        is_biased_(request.p != 1 || request.q != 1),
        checkpoint_(checkpoint) {}

  // The node whose neighbourhood was found damaged, or -1.
  std::int64_t bad_indptr() const { return bad_indptr_; }
  std::int64_t bad_index() const { return bad_index_; }

  // Takes one step of the group's live walks: slot and source of each. Returns false where
  // something is damaged. `threads` is for what is paged.
  bool step(Group& group, std::int64_t num_live) {
    std::int64_t* const open = group.open.data();
    std::copy_n(group.live.data(), num_live, open);
    std::int64_t left = num_live;
    for (int round = 0; left > 0; ++round) {
      guarded([&] { choose(group, open, left, round == 0); });
      if (bad_indptr_ >= 0) return false;
      fetch(group.slot.data(), group.source.data(), open, left);
      if (!check(group, open, left)) return false;
      if (!is_biased_) return true;
      if (csc_.paged != nullptr) {
        checkpoint_();
        left = reject_paged(group, open, left);
      } else {
        guarded([&] { left = reject(group, open, left); });
      }
      if (round < kMostRejected) continue;
      for (std::int64_t j = 0; j < left; ++j) weigh_all(group, open[j]);
      return check(group, open, left);
    }
    return true;
  }

 private:
  // Draws an edge for each of these walks. REQUIRES: runs inside guarded().
  void choose(Group& group, const std::int64_t* walks, std::int64_t count, bool is_first) {
    const EdgeOrder& order = type_.order;
    const bool is_paged = csc_.paged != nullptr;
    for (std::int64_t j = 0; j < count; ++j) {
      const std::int64_t i = walks[j];
      CounterRng& rng = group.rng[static_cast<std::size_t>(i)];
      if (is_first && request_.restart > 0 && fraction(rng) < request_.restart) {
        group.slot.data()[i] = kRestart;
        continue;
      }
      const std::int64_t v = group.node.data()[i];
      const std::int64_t first = csc_.indptr[v], last = csc_.indptr[v + 1];
      if (first < 0 || last < first || last > csc_.num_edges) [[unlikely]] {
        bad_indptr_ = v;
        return;
      }
      std::int64_t slot = kEnd;
      if (order.cumulative != nullptr) {
        if (last > first) {
          const std::int64_t drawn =
              WeightedSampler::draw_with_replacement(order, rng, first, last - first, 1, &slot);
          slot = drawn == 0 ? kEnd : order.slot(slot);
        }
      } else if (last > first) {
        slot =
            first + static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(last - first)));
      }
      group.slot.data()[i] = slot;
      if (is_biased_ && slot >= 0) group.chance[static_cast<std::size_t>(i)] = fraction(rng);
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
    for (std::int64_t j = 0; j < count; ++j) {
      if (slot[walks[j]] >= 0) wanted.push_back(slot[walks[j]]);
    }
    found.resize(wanted.size());
    read_sources({&csc_, wanted, found.data()}, request_.max_bytes, checkpoint_);
    std::size_t next = 0;
    for (std::int64_t j = 0; j < count; ++j) {
      if (slot[walks[j]] >= 0) source[walks[j]] = found[next++];
    }
  }

  bool check(const Group& group, const std::int64_t* walks, std::int64_t count) {
    for (std::int64_t j = 0; j < count; ++j) {
      const std::int64_t i = walks[j];
      if (group.slot.data()[i] < 0) continue;
      const std::int64_t x = group.source.data()[i];
      if (static_cast<std::uint64_t>(x) >= static_cast<std::uint64_t>(csc_.num_src)) {
        bad_index_ = x;
        return false;
      }
    }
    return true;
  }

  // What a candidate's fate is, as far as it is known without a look at neighbourhoods: taken,
  // rejected, or to be looked up.
  enum class Fate { kTaken, kRejected, kUnknown };
  Fate judge(const Group& group, std::int64_t i) const {
    if (group.slot.data()[i] < 0 || group.before.data()[i] < 0) return Fate::kTaken;
    const double chance = group.chance[static_cast<std::size_t>(i)];
    if (chance < bias_.least) return Fate::kTaken;
    if (group.source.data()[i] == group.before.data()[i]) {
      return chance < bias_.back ? Fate::kTaken : Fate::kRejected;
    }
    if (chance >= std::max(bias_.near, bias_.far)) return Fate::kRejected;
    if (chance < std::min(bias_.near, bias_.far)) return Fate::kTaken;
    return Fate::kUnknown;
  }
  bool is_taken(const Group& group, std::int64_t i, bool is_near) const {
    return group.chance[static_cast<std::size_t>(i)] < (is_near ? bias_.near : bias_.far);
  }

  // Leaves the walks whose candidate is rejected; returns how many. REQUIRES as choose().
  std::int64_t reject(const Group& group, std::int64_t* walks, std::int64_t count) const {
    std::int64_t left = 0;
    for (std::int64_t j = 0; j < count; ++j) {
      const std::int64_t i = walks[j];
      const Fate fate = judge(group, i);
      if (fate == Fate::kTaken) continue;
      if (fate == Fate::kUnknown &&
          is_taken(group, i, has_neighbor(group.before.data()[i], group.source.data()[i]))) {
        continue;
      }
      walks[left++] = i;
    }
    return left;
  }

  // REQUIRES that a walk was at v.
  bool has_neighbor(std::int64_t v, std::int64_t x) const {
    std::int64_t low = csc_.indptr[v], high = csc_.indptr[v + 1];
    if (!is_sorted_) {
      for (; low < high; ++low) {
        if (csc_.source(low) == x) return true;
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

  // As reject() where neighbours are read: all searches take each step together. REQUIRES that
  // neighbours ascend.
  std::int64_t reject_paged(Group& group, std::int64_t* walks, std::int64_t count) {
    std::int64_t left = 0, searching = 0;
    std::int64_t* const low = group.low.data();
    std::int64_t* const high = group.high.data();
    std::int64_t* const asked = group.asked.data();
    for (std::int64_t j = 0; j < count; ++j) {
      const std::int64_t i = walks[j];
      const Fate fate = judge(group, i);
      if (fate == Fate::kRejected) walks[left++] = i;
      if (fate == Fate::kUnknown) asked[searching++] = i;
    }
    const std::vector<std::int64_t> unknown(asked, asked + searching);
    guarded([&] {
      for (std::int64_t j = 0; j < searching; ++j) {
        const std::int64_t t = group.before.data()[asked[j]];
        low[asked[j]] = csc_.indptr[t];
        high[asked[j]] = csc_.indptr[t + 1];
      }
    });
    std::vector<std::int64_t> middle(group.rng.size()), found(group.rng.size(), -1);
    std::vector<bool> is_near(group.rng.size(), false);
    while (searching > 0) {
      std::int64_t going = 0;
      for (std::int64_t j = 0; j < searching; ++j) {
        const std::int64_t i = asked[j];
        if (is_near[static_cast<std::size_t>(i)] || low[i] >= high[i]) continue;
        middle[static_cast<std::size_t>(i)] = low[i] + (high[i] - low[i]) / 2;
        asked[going++] = i;
      }
      searching = going;
      fetch(middle.data(), found.data(), asked, searching);
      for (std::int64_t j = 0; j < searching; ++j) {
        const std::int64_t i = asked[j];
        const auto at = static_cast<std::size_t>(i);
        const std::int64_t x = group.source.data()[i];
        is_near[at] = found[at] == x;
        (found[at] < x ? low[i] : high[i]) = middle[at] + (found[at] < x ? 1 : 0);
      }
    }
    for (const std::int64_t i : unknown) {
      if (!is_taken(group, i, is_near[static_cast<std::size_t>(i)])) walks[left++] = i;
    }
    return left;
  }

  // Draws among all neighbours by what each weighs.
  void weigh_all(Group& group, std::int64_t i) {
    const EdgeOrder& order = type_.order;
    const std::int64_t t = group.before.data()[i];
    const std::vector<std::int64_t> slots = slots_of(group.node.data()[i], &order);
    const std::vector<std::int64_t> sources = sources_of(slots);
    std::vector<std::int64_t> near = sources_of(slots_of(t, nullptr));
    std::sort(near.begin(), near.end());
    std::vector<double> weights;
    for (std::size_t k = 0; k < slots.size(); ++k) {
      const std::int64_t x = sources[k];
      const bool is_near = std::binary_search(near.begin(), near.end(), x);
      weights.push_back(x == t ? bias_.back : is_near ? bias_.near : bias_.far);
    }
    guarded([&] {
      const std::int64_t first = csc_.indptr[group.node.data()[i]];
      if (order.cumulative == nullptr) return;
      for (std::size_t k = 0; k < weights.size(); ++k) {
        const std::int64_t rank = first + static_cast<std::int64_t>(k);
        weights[k] *= static_cast<double>(order.cumulative[rank] - order.weight_before(rank));
      }
    });
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    double at = fraction(group.rng[static_cast<std::size_t>(i)]) * total;
    std::size_t taken = 0;
    for (std::size_t k = 0; k < weights.size(); ++k) {
      if (weights[k] > 0) taken = k;
      if (at < weights[k]) break;
      at -= weights[k];
    }
    group.slot.data()[i] = slots[taken];
    group.source.data()[i] = sources[taken];
  }

  // Those of a node's edges, in an order or in their own. REQUIRES that a walk was there.
  std::vector<std::int64_t> slots_of(std::int64_t v, const EdgeOrder* order) const {
    std::int64_t first = 0, last = 0;
    guarded([&] {
      first = csc_.indptr[v];
      last = csc_.indptr[v + 1];
    });
    std::vector<std::int64_t> slots(static_cast<std::size_t>(last - first));
    std::iota(slots.begin(), slots.end(), first);
    if (order != nullptr) {
      guarded([&] {
        for (std::int64_t& slot : slots) slot = order->slot(slot);
      });
    }
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
  const Bias bias_;
  const bool is_biased_;
  const std::function<void()>& checkpoint_;
  std::int64_t bad_indptr_ = -1;
  std::int64_t bad_index_ = -1;
};

// Takes some walks from their start to their end, and writes their rows.
void walk_group(const std::vector<SampledEdgeType>& types, const std::vector<bool>& is_sorted,
                const WalkRequest& request, std::int64_t first, std::int64_t count, Group& group,
                std::int64_t* nodes, std::int64_t* slots, const std::function<void()>& checkpoint) {
  const auto length = static_cast<std::int64_t>(request.steps.size());
  std::int64_t* const live = group.live.data();
  std::int64_t num_live = count;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t start = request.start[static_cast<std::size_t>(first + i)];
    live[i] = i;
    group.node.data()[i] = start;
    group.before.data()[i] = -1;
    group.rng[static_cast<std::size_t>(i)] =
        CounterRng(request.key, static_cast<std::uint64_t>(first + i));
    nodes[(first + i) * (length + 1)] = start;
  }
  for (std::int64_t t = 0; t < length; ++t) {
    const std::size_t number = request.steps[static_cast<std::size_t>(t)];
    const SampledEdgeType& type = types[number];
    Stepper stepper(type, is_sorted[number], request, checkpoint);
    if (!stepper.step(group, num_live)) {
      if (stepper.bad_indptr() >= 0) throw_bad_indptr(type.csc, stepper.bad_indptr());
      throw_bad_index(type.csc, stepper.bad_index());
    }
    const std::int64_t* const next =
        t + 1 < length ? types[request.steps[static_cast<std::size_t>(t + 1)]].csc.indptr : nullptr;
    std::int64_t left = 0;
    for (std::int64_t j = 0; j < num_live; ++j) {
      const std::int64_t i = live[j];
      const std::int64_t slot = group.slot.data()[i];
      std::int64_t* const row = nodes + (first + i) * (length + 1);
      if (slots != nullptr) slots[(first + i) * length + t] = std::max<std::int64_t>(slot, -1);
      if (slot == kEnd) {
        std::fill(row + t + 1, row + length + 1, request.stay ? row[t] : -1);
        if (slots != nullptr) std::fill_n(slots + (first + i) * length + t, length - t, -1);
        continue;
      }
      const std::int64_t x = slot == kRestart ? row[0] : group.source.data()[i];
      group.before.data()[i] = slot == kRestart ? -1 : row[t];
      group.node.data()[i] = x;
      row[t + 1] = x;
      if (next != nullptr) __builtin_prefetch(next + x);
      live[left++] = i;
    }
    num_live = left;
  }
}

bool is_paged_step(const std::vector<SampledEdgeType>& types, const WalkRequest& request) {
  return std::any_of(request.steps.begin(), request.steps.end(),
                     [&](std::size_t step) { return types[step].csc.paged != nullptr; });
}

}  // namespace

Walker::Walker(std::vector<std::int64_t> num_nodes, std::vector<SampledEdgeType> edge_types,
               std::vector<bool> is_sorted)
    : num_nodes_(std::move(num_nodes)),
      edge_types_(std::move(edge_types)),
      is_sorted_(std::move(is_sorted)) {
  check_edge_types(num_nodes_, edge_types_);
  if (is_sorted_.size() != edge_types_.size()) {
    throw std::invalid_argument("is_sorted: expected one of each edge type");
  }
}

void Walker::check(const WalkRequest& request) const {
  int at = -1;
  for (const std::size_t step : request.steps) {
    if (step >= edge_types_.size() || (at >= 0 && edge_types_[step].dst_type != at)) {
      throw std::invalid_argument("steps: expected edge types that follow on each other");
    }
    at = edge_types_[step].src_type;
    const bool is_biased = request.p != 1 || request.q != 1;
    if (is_biased && step != request.steps.front()) {
      throw std::invalid_argument("p, q: expected steps of one edge type");
    }
    if (is_biased && edge_types_[step].csc.paged != nullptr && !is_sorted_[step]) {
      throw std::invalid_argument(edge_types_[step].csc.name +
                                  ": p, q: expected neighbours that ascend");
    }
  }
  if (request.steps.empty()) throw std::invalid_argument("steps: found none, expected some");
  const std::int64_t size =
      num_nodes_[static_cast<std::size_t>(edge_types_[request.steps.front()].dst_type)];
  for (std::size_t i = 0; i < request.start.size(); ++i) check_seed(i, request.start[i], size);
}

Walks Walker::walk(const WalkRequest& request, const std::function<void()>& checkpoint) const {
  check(request);
  check_files(edge_types_);
  const auto count = static_cast<std::int64_t>(request.start.size());
  const auto length = static_cast<std::int64_t>(request.steps.size());
  Walks out;
  out.nodes.resize(count * (length + 1));
  if (request.wants_slots) out.slots.resize(count * length);
  std::int64_t* const nodes = out.nodes.data();
  std::int64_t* const slots = request.wants_slots ? out.slots.data() : nullptr;
  if (is_paged_step(edge_types_, request)) {
    // Many together: the more ask, the less of the file is read for each.
    const std::int64_t most = std::max(chunk_sizes.walked_together, request.max_bytes / kWalkBytes);
    Group group(std::min(count, most));
    for (std::int64_t from = 0; from < count; from += most) {
      walk_group(edge_types_, is_sorted_, request, from, std::min(most, count - from), group, nodes,
                 slots, checkpoint);
    }
    return out;
  }
  const std::int64_t together = chunk_sizes.walked_together;
  const std::function<void()> nothing = [] {};
  std::int64_t piece = together * num_threads(request.threads);
  for (std::int64_t from = 0; from < count;) {
    const auto begin = std::chrono::steady_clock::now();
    const std::int64_t size = std::min(piece, count - from);
    const std::int64_t share = size / (4 * num_threads(request.threads)) / together;
    const std::int64_t grain = together * std::max<std::int64_t>(1, share);
    parallel_for(size, grain, request.threads, [&](std::int64_t first, std::int64_t last) {
      Group group(together);
      for (std::int64_t at = first; at < last; at += together) {
        walk_group(edge_types_, is_sorted_, request, from + at, std::min(together, last - at),
                   group, nodes, slots, nothing);
      }
    });
    from += size;
    checkpoint();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    if (taken.count() < 0.1) piece *= 2;
  }
  return out;
}

}  // namespace gz
