#include "sampling/walks.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "arrays/parallel.h"
#include "base/chunk_sizes.h"
#include "base/errors.h"
#include "base/rng.h"
#include "sampling/walk_step.h"

namespace gz {
namespace {

// Takes some walks from their start to their end, and writes their rows.
void walk_group(const std::vector<SampledEdgeType>& types, const std::vector<bool>& is_sorted,
                const WalkRequest& request, std::int64_t first, std::int64_t count,
                WalkGroup& group, std::int64_t* nodes, std::int64_t* slots,
                const std::function<void()>& checkpoint) {
  const auto length = static_cast<std::int64_t>(request.steps.size());
  std::int64_t* const live = group.live.data();
  std::int64_t num_live = count;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t start = request.start[static_cast<std::size_t>(first + i)];
    live[i] = i;
    group.node[i] = start;
    if (request.is_biased()) group.before[i] = -1;
    if (request.is_timed()) {
      const auto at = static_cast<std::size_t>(first + i);
      group.latest[i] = request.latest[at];
      group.earliest[i] = request.earliest.empty() ? kFirstTime : request.earliest[at];
    }
    group.rng[i] = CounterRng(request.key, static_cast<std::uint64_t>(first + i));
    nodes[(first + i) * (length + 1)] = start;
  }
  for (std::int64_t t = 0; t < length; ++t) {
    const std::size_t number = request.steps[static_cast<std::size_t>(t)];
    const SampledEdgeType& type = types[number];
    WalkStepper(type, is_sorted[number], request, checkpoint).step(group, num_live);
    const std::int64_t* const next =
        t + 1 < length ? types[request.steps[static_cast<std::size_t>(t + 1)]].csc.indptr : nullptr;
    std::int64_t left = 0;
    for (std::int64_t j = 0; j < num_live; ++j) {
      const std::int64_t i = live[j];
      const std::int64_t slot = group.slot[i];
      std::int64_t* const row = nodes + (first + i) * (length + 1);
      if (slots != nullptr) slots[(first + i) * length + t] = std::max<std::int64_t>(slot, -1);
      if (slot == kWalkEnd) {
        std::fill(row + t + 1, row + length + 1, request.stay ? row[t] : -1);
        if (slots != nullptr) std::fill_n(slots + (first + i) * length + t, length - t, -1);
        continue;
      }
      const std::int64_t x = slot == kWalkRestart ? row[0] : group.source[i];
      if (request.is_biased()) group.before[i] = slot == kWalkRestart ? -1 : row[t];
      group.node[i] = x;
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
  for (const SampledEdgeType& type : edge_types_) need_neighbors(type.csc);
  if (is_sorted_.size() != edge_types_.size()) {
    throw invalid("is_sorted: expected one of each edge type");
  }
}

void Walker::check(const WalkRequest& request) const {
  int at = -1;
  for (const std::size_t step : request.steps) {
    if (step >= edge_types_.size() || (at >= 0 && edge_types_[step].dst_type != at)) {
      throw invalid("steps: expected edge types that follow on each other");
    }
    at = edge_types_[step].src_type;
    const bool is_biased = request.is_biased();
    if (is_biased && step != request.steps.front()) {
      throw invalid("p, q: expected steps of one edge type");
    }
    const bool is_timed = edge_types_[step].order.times != nullptr;
    if (is_biased && edge_types_[step].csc.paged != nullptr && (!is_sorted_[step] || is_timed)) {
      throw invalid(edge_types_[step].csc.name,
                    ": p, q: expected neighbours that ascend, without times");
    }
    if (is_timed && request.latest.size() != request.start.size()) {
      throw invalid("latest: expected a time of each walk over edges with times");
    }
  }
  if (!request.earliest.empty() && request.earliest.size() != request.latest.size()) {
    throw invalid("earliest: expected as many times as in latest");
  }
  if (request.steps.empty()) throw invalid("steps: found none, expected some");
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
    const std::int64_t most =
        std::max(chunk_sizes.walked_together, request.max_bytes / WalkGroup::bytes_each(request));
    WalkGroup group(std::min(count, most), request);
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
      WalkGroup group(together, request);
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
