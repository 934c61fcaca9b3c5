#include "sampling/neighbor_sampler.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "sampling/neighbor_run.h"

namespace gz {
namespace {

void check_pairs(const ExcludedPairs& pairs, std::size_t num_edge_types) {
  const bool even = pairs.src.size() == pairs.dst.size() &&
                    (pairs.times.empty() || pairs.times.size() == pairs.src.size());
  if (pairs.edge_type >= 0 && static_cast<std::size_t>(pairs.edge_type) < num_edge_types && even) {
    return;
  }
  throw invalid("excluded: found ", pairs.src.size(), " sources, ", pairs.dst.size(),
                " destinations and ", pairs.times.size(), " times for edge type ", pairs.edge_type,
                ", expected as many of each, or no times, and an edge type below ", num_edge_types);
}

void check_times(const std::vector<Seeds>& seeds, const std::vector<SampledEdgeType>& edge_types,
                 bool disjoint) {
  const bool timed = std::any_of(edge_types.begin(), edge_types.end(),
                                 [](const auto& type) { return type.order.times != nullptr; });
  const bool has_windows = std::any_of(seeds.begin(), seeds.end(), [](const Seeds& each) {
    return each.times.size() > each.nodes.size();
  });
  for (const Seeds& each : seeds) {
    const std::size_t expected = (has_windows ? 2 : 1) * each.nodes.size();
    if (!each.times.empty() && each.times.size() != expected) {
      throw invalid("seed times: found ", each.times.size(), ", expected ", expected);
    }
    if (timed && (!disjoint || each.times.size() != expected)) {
      throw invalid("edges with times need disjoint sampling and a time per seed");
    }
  }
}

}  // namespace

NeighborSampler::NeighborSampler(std::vector<std::int64_t> num_nodes,
                                 std::vector<SampledEdgeType> edge_types)
    : num_nodes_(std::move(num_nodes)), edge_types_(std::move(edge_types)) {
  check_edge_types(num_nodes_, edge_types_);
}

NeighborSampler::~NeighborSampler() = default;

void NeighborSampler::check(const SampleRequest& request) const {
  check_hops("num_neighbors", request.num_neighbors, "edge type", edge_types_.size(), -1);
  if (request.labor && request.replace) {
    throw invalid("labor: found drawing with replacement, expected without");
  }
  if (request.labor && reads()) {
    throw invalid(
        "method='labor': found a topology that is not all in memory, expected one that is: every "
        "neighbour of every frontier node is looked at; raise memory=, or sample uniformly");
  }
  if (request.labor && request.labor->batch_dependency == 0) {
    throw invalid("batch_dependency: found 0, expected a number of batches");
  }
  for (const Seeds& seeds : request.seeds) check_seed_type(seeds.node_type, num_nodes_.size());
  for (const ExcludedPairs& pairs : request.excluded) check_pairs(pairs, edge_types_.size());
  check_times(request.seeds, edge_types_, request.disjoint);
  check_files(edge_types_);
}

bool NeighborSampler::reads() const noexcept { return is_asked(edge_types_); }

SamplingRun NeighborSampler::begin(SampleRequest request) const {
  check(request);
  std::unique_ptr<Workspace> workspace = workspaces_.borrow();
  Run run(*this, request, *workspace);
  run.add_seeds();
  for (const ExcludedPairs& pairs : request.excluded) {
    const auto e = static_cast<std::size_t>(pairs.edge_type);
    run.exclude(pairs);
    while (edge_types_[e].csc.is_asked() && run.list_excluded(e)) {
      co_yield run.wanted();
      run.keep_excluded(e);
    }
  }
  for (std::size_t hop = 0; hop < run.num_hops(); ++hop) {
    const std::span<const SourceList> wanted = run.expand(hop);
    if (!wanted.empty()) co_yield wanted;
    run.relabel_rest();
  }
  if (request.induced) {
    for (std::size_t e = 0; e < edge_types_.size(); ++e) {
      run.induce(e);
      while (run.list_induced()) {
        if (!run.wanted().empty()) co_yield run.wanted();
        run.keep_induced(e);
      }
      run.drop_excluded(e);
    }
  }
  if (reads()) {  // the next runs of the window end one by one, and each takes this room then
    for (Workspace::NodeIds& ids : workspace->ids) {
      ids.narrow.release();
      ids.wide.release();
    }
  }
  workspaces_.give_back(std::move(workspace));
  co_return run.take();
}

}  // namespace gz
