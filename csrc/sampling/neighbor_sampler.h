// Multi-hop neighbour sampling over one or many edge types (Hamilton et al. 2017, "Inductive
// Representation Learning on Large Graphs"): homogeneous is one node type and one edge type.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "sampling/edge_order.h"
#include "storage/topology.h"

namespace gz {

// The in-neighbours of one edge type, wherever they lie.
struct Csc {
  const std::int64_t* indptr;  // [num_dst + 1]
  const void* indices;         // [num_edges], uint32 or int64 as index_bytes says
  std::uint32_t index_bytes;
  std::int64_t num_src;
  std::int64_t num_dst;
  std::int64_t num_edges;
  std::string name;                      // file path, or what else to call it in an error
  std::shared_ptr<const Topology> file;  // null for arrays in memory
  std::shared_ptr<const void> owner;     // keeps arrays in memory alive
};

struct SampledEdgeType {
  int src_type;
  int dst_type;
  Csc csc;
  EdgeOrder order = {};
};

struct Seeds {
  int node_type;
  std::span<const std::int64_t> nodes;
  std::span<const std::int64_t> times = {};  // one per seed, or none
};

struct SampleRequest {
  std::vector<Seeds> seeds;
  // [edge type][hop]: how many neighbours each frontier node draws; -1: all of them.
  std::vector<std::vector<std::int64_t>> num_neighbors;
  bool replace = false;
  bool disjoint = false;  // every seed grows a tree of its own; trees share no node
  bool last = false;      // where edges have times: the newest instead of any
  bool induced = false;   // afterwards: all edges among the sampled nodes instead of those drawn
  std::uint64_t key = 0;  // names the batch; the same key gives the same sample
  int threads = 0;
};

// What was sampled, relabelled. Positions count within their node type, seeds first.
struct Sample {
  struct Edges {
    Buffer<std::int64_t> row;   // position of the neighbour (message source)
    Buffer<std::int64_t> col;   // position of the node it was drawn for
    Buffer<std::int64_t> slot;  // index into the edge type's CSC arrays
  };
  std::vector<Buffer<std::int64_t>> nodes;  // [node type]: global ids
  std::vector<Buffer<std::int64_t>> trees;  // [node type]: seed number, if disjoint
  std::vector<Edges> edges;                 // [edge type]
  std::vector<std::vector<std::int64_t>> num_sampled_nodes;  // [node type][hop + 1]
  std::vector<std::vector<std::int64_t>> num_sampled_edges;  // [edge type][hop]; none if induced
};

// Thread safety: sample() may be called from any number of threads at once.
class NeighborSampler {
 public:
  // num_nodes[t] is the size of node type t. Raises std::invalid_argument where an edge type does
  // not fit the node types it connects.
  NeighborSampler(std::vector<std::int64_t> num_nodes, std::vector<SampledEdgeType> edge_types);
  ~NeighborSampler();

  // Contract:
  // - every seed keeps its place in nodes, duplicates too, and each occurrence draws for itself;
  // - without replacement a node draws min(degree, k) distinct edges, each k-subset equally likely,
  //   with replacement k edges independently; the cost is O(k), whatever the degree;
  // - edges are grouped by col, hop by hop; new nodes are numbered in the order of their first
  // edge;
  // - with times (REQUIRES disjoint and a time for every seed), only edges not later than the seed
  // of
  //   the tree are there to draw from; `last` takes the newest k of them;
  // - with weights, each draw is in proportion to weight; an edge of weight 0 is never drawn,
  // unless
  //   all neighbours are asked for;
  // - the result depends on the request alone, not on `threads`.
  // Raises std::out_of_range for a seed that is not a node, std::invalid_argument for a bad
  // fan-out, FormatError for a topology that contradicts itself, OsError when its file was cut
  // short.
  Sample sample(const SampleRequest& request) const;

 private:
  struct Workspace;
  class Run;

  std::unique_ptr<Workspace> borrow() const;
  void give_back(std::unique_ptr<Workspace> workspace) const;

  std::vector<std::int64_t> num_nodes_;
  std::vector<SampledEdgeType> edge_types_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Workspace>> idle_;
};

}  // namespace gz
