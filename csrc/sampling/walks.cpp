#include "sampling/walks.h"

#include <algorithm>
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

}  // namespace

Walker::Walker(SampledGraph graph, std::vector<bool> is_sorted)
    : graph_(std::move(graph)), is_sorted_(std::move(is_sorted)) {
  graph_.check();
  for (const SampledEdgeType& type : graph_.edge_types) need_neighbors(type.csc);
  if (is_sorted_.size() != graph_.edge_types.size()) {
    throw invalid("is_sorted: expected one of each edge type");
  }
}

void Walker::check(const WalkRequest& request) const {
  int at = -1;
  for (const std::size_t step : request.steps) {
    if (step >= graph_.edge_types.size() || (at >= 0 && graph_.edge_types[step].dst_type != at)) {
      throw invalid("steps: expected edge types that follow on each other");
    }
    at = graph_.edge_types[step].src_type;
    const bool is_biased = request.is_biased();
    if (is_biased && step != request.steps.front()) {
      throw invalid("p, q: expected steps of one edge type");
    }
    const bool is_timed = graph_.edge_types[step].order.times != nullptr;
    if (is_biased && graph_.edge_types[step].csc.paged != nullptr &&
        (!is_sorted_[step] || is_timed)) {
      throw invalid(graph_.edge_types[step].csc.name,
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
      graph_.num_nodes[static_cast<std::size_t>(graph_.edge_types[request.steps.front()].dst_type)];
  for (std::size_t i = 0; i < request.start.size(); ++i) check_seed(i, request.start[i], size);
}

Walks Walker::walk(const WalkRequest& request, const std::function<void()>& checkpoint) const {
  check(request);
  graph_.check_files();
  const auto count = static_cast<std::int64_t>(request.start.size());
  const auto length = static_cast<std::int64_t>(request.steps.size());
  Walks out;
  out.nodes.resize(count * (length + 1));
  if (request.wants_slots) out.slots.resize(count * length);
  std::int64_t* const nodes = out.nodes.data();
  std::int64_t* const slots = request.wants_slots ? out.slots.data() : nullptr;
  // Where some are paged, many together on one thread: the more ask, the less is read for each.
  const bool is_paged =
      std::any_of(request.steps.begin(), request.steps.end(),
                  [&](std::size_t step) { return graph_.edge_types[step].csc.paged != nullptr; });
  const std::int64_t room = is_paged ? request.max_bytes / WalkGroup::bytes_each(request) : 0;
  const std::int64_t together = std::max(chunk_sizes.walked_together, room);
  const int threads = is_paged ? 1 : num_threads(request.threads);
  const std::function<void()> nothing = [] {};
  const std::int64_t piece = std::max(together * threads, chunk_sizes.walked_steps / length);
  for (std::int64_t from = 0; from < count; from += piece) {
    const std::int64_t size = std::min(piece, count - from);
    const std::int64_t share = size / (4 * threads) / together;
    const std::int64_t grain = together * std::max<std::int64_t>(1, share);
    parallel_for(size, grain, threads, [&](std::int64_t first, std::int64_t last) {
      WalkGroup group(std::min(together, last - first), request);
      for (std::int64_t at = first; at < last; at += together) {
        walk_group(graph_.edge_types, is_sorted_, request, from + at, std::min(together, last - at),
                   group, nodes, slots, is_paged ? checkpoint : nothing);
      }
    });
    checkpoint();
  }
  return out;
}

}  // namespace gz
