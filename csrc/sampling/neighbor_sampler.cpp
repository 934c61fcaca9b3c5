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

NeighborSampler::NeighborSampler(SampledGraph graph) : graph_(std::move(graph)) { graph_.check(); }

NeighborSampler::~NeighborSampler() = default;

std::size_t NeighborSampler::check(const SampleRequest& request) const {
  const std::size_t num_types = graph_.edge_types.size();
  const std::size_t num_hops =
      check_hops("num_neighbors", request.num_neighbors, "edge type", num_types, -1);
  if (request.labor && request.replace) {
    throw invalid("labor: found drawing with replacement, expected without");
  }
  if (request.labor && reads()) {
    throw invalid(
        "method='labor': found a topology that is not all in memory, expected one that is: every "
        "neighbour of every frontier node is looked at; raise memory=, or sample uniformly");
  }
  for (const Seeds& seeds : request.seeds) graph_.check_node_type(seeds.node_type);
  for (const ExcludedPairs& pairs : request.excluded) check_pairs(pairs, num_types);
  check_times(request.seeds, graph_.edge_types, request.disjoint);
  graph_.check_files();
  return num_hops;
}

SamplingRun NeighborSampler::begin(SampleRequest request) const {
  const std::size_t num_hops = check(request);
  std::unique_ptr<Workspace> workspace = workspaces_.borrow();
  Run run(graph_, request, *workspace);
  run.add_seeds();
  for (const ExcludedPairs& pairs : request.excluded) {
    ExcludedEdges& edges = run.exclude(pairs);
    const bool is_asked =
        graph_.edge_types[static_cast<std::size_t>(pairs.edge_type)].csc.is_asked();
    if (!is_asked) edges.find();
    while (is_asked && edges.list(request.threads)) {
      co_yield edges.wanted();
      edges.keep(request.threads);
    }
    edges.settle();
  }
  for (std::size_t hop = 0; hop < num_hops; ++hop) {
    co_yield run.expand(hop);
    run.relabel_rest();
  }
  if (request.induced) {
    for (std::size_t e = 0; e < graph_.edge_types.size(); ++e) {
      InducedStretches edges = run.induced(e);
      while (edges.list(request.threads)) {
        co_yield edges.wanted();
        run.keep_induced(e, edges);
      }
      run.drop_excluded(e);
    }
  }
  // Runs that read end one by one, many in a window: none takes over the room of another.
  if (!reads()) workspaces_.give_back(std::move(workspace));
  co_return run.take();
}

}  // namespace gz
