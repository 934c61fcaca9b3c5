// Multi-hop neighbour sampling over one or many edge types (Hamilton et al. 2017, "Inductive
// Representation Learning on Large Graphs"): homogeneous is one node type and one edge type.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sampling/graph.h"
#include "sampling/sample.h"
#include "sampling/sample_window.h"
#include "sampling/workspace_pool.h"

namespace gz {

struct SampleRequest : BatchRequest {
  // [edge type][hop]: how many neighbours each frontier node draws; -1: all of them.
  std::vector<std::vector<std::int64_t>> num_neighbors;
  bool replace = false;
  bool disjoint = false;  // every seed grows a tree of its own; trees share no node
  bool last = false;      // where edges have times: the newest instead of any
  bool induced = false;   // afterwards: all edges among the sampled nodes instead of those drawn
  bool whole_frontier = false;      // in each hop all nodes of the sample draw, not only the newest
  std::optional<Labor> labor = {};  // draw by variates that destinations share
  int threads = 0;
};

// Thread safety: runs may go on in any number of threads at once, each in one.
class NeighborSampler {
 public:
  // Raises as SampledGraph::check().
  explicit NeighborSampler(SampledGraph graph);
  ~NeighborSampler();

  // Samples step by step, for sample_window(); the sampler outlives the run. Contract:
  // - every seed keeps its place in nodes, duplicates too, and each occurrence draws for itself;
  // - without replacement a node draws min(degree, k) distinct edges, each k-subset equally likely,
  //   with replacement k edges independently; the cost is O(k), whatever the degree;
  // - edges are grouped by col, hop by hop; new nodes are numbered in the order of their first
  //   edge;
  // - with times (REQUIRES disjoint and times for every seed), only edges not later than the seed
  //   of the tree are there to draw from, and none before its window; `last` takes the newest k of
  //   them; induced edges are within the window of the first hop;
  // - with weights, each draw is in proportion to weight; an edge of weight 0 is never drawn,
  //   unless all neighbours are asked for;
  // - excluded edges are in no sample: all that was said holds of the neighbours that remain; the
  //   whole neighbourhoods of their destinations are looked at;
  // - by LABOR each destination draws as if alone, in proportion to weight too, but all by the same
  //   variates of a node type's vertices (trees and occurrences of a seed as well, so that the same
  //   vertices serve all of them), at a cost of O(degree); without replacement only;
  // - the result depends on the request alone, not on `threads`.
  // Raises std::out_of_range for a seed or an end that is not a node, std::invalid_argument for a
  // bad fan-out, FormatError for a topology that contradicts itself, OsError when its file was cut
  // short.
  SamplingRun begin(SampleRequest request) const;
  // Whether some edge type is paged: then batches cost less together.
  bool reads() const noexcept { return graph_.is_asked(); }

 private:
  struct Workspace;
  class Run;

  // Returns how many hops are asked for.
  std::size_t check(const SampleRequest& request) const;

  SampledGraph graph_;
  mutable WorkspacePool<Workspace> workspaces_;
};

}  // namespace gz
