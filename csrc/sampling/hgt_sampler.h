// Budgeted sampling over node types (Hu et al. 2020, "Heterogeneous Graph Transformer", Algorithms
// 1 and 2): about as many nodes of every type, and those that many sampled nodes point to.
#pragma once

#include <cstdint>
#include <vector>

#include "sampling/graph.h"
#include "sampling/sample.h"
#include "sampling/sample_window.h"
#include "sampling/workspace_pool.h"

namespace gz {

struct HgtRequest : BatchRequest {
  // [node type][hop]: how many nodes are added.
  std::vector<std::vector<std::int64_t>> num_samples;
  int threads = 0;
};

// Thread safety: as NeighborSampler.
class HgtSampler {
 public:
  // A sampled node with more neighbours by one edge type than this lets this many of them, drawn at
  // random, into the budget, as torch-sparse does.
  static constexpr std::int64_t kMaxNeighbors = 50;

  // Like NeighborSampler's; weights and times are not looked at.
  explicit HgtSampler(SampledGraph graph);
  ~HgtSampler();

  // Like NeighborSampler's, without excluded edges. Contract:
  // - every seed keeps its place in nodes, duplicates too;
  // - each sampled node (each occurrence of a seed) adds, by every edge type into it, 1 / n to the
  //   budget of each of its n neighbours that are not sampled (n is kMaxNeighbors and they are
  //   drawn, where there are more); parallel edges count each;
  // - a hop takes min(num_samples, how many have a budget) nodes of each type, one after the other
  //   without replacement, each in proportion to budget squared; then what they took adds to the
  //   budgets of the next hop;
  // - the edges are all that join sampled nodes, grouped by col; num_sampled_edges stays empty;
  // - the result depends on the request alone, not on `threads`.
  SamplingRun begin(HgtRequest request) const;
  bool reads() const noexcept { return graph_.is_asked(); }

 private:
  struct Workspace;
  class Run;

  // Returns how many hops are asked for.
  std::size_t check(const HgtRequest& request) const;

  SampledGraph graph_;
  mutable WorkspacePool<Workspace> workspaces_;
};

}  // namespace gz
