// Input and output of a sampler.
#pragma once

#include <cstdint>
#include <vector>

#include "arrays/buffer.h"

namespace gz {

// Names a batch: the same key gives the same batch. Converts to a number and from one implicitly,
// for code that does not care which batch of its epoch it is.
struct BatchKey {
  BatchKey(std::uint64_t key = 0, std::uint64_t place = 0) noexcept  // NOLINT
      : value(key), number(place) {}
  operator std::uint64_t() const noexcept { return value; }  // NOLINT

  std::uint64_t value;
  std::uint64_t number;  // of the batch in its epoch, whose key is value - number
};

// Sampling by variates that destinations share; see labor.h.
struct Labor {
  bool layer_dependent = false;  // hops share their variates
  // Over how many batches the variates of a vertex drift from one set to the next (Balin et al.
  // 2023, "Cooperative Minibatching in Graph Neural Networks"); 1: each batch has its own.
  std::uint64_t batch_dependency = 1;
};

struct Seeds {
  int node_type;
  std::vector<std::int64_t> nodes;
  // Empty; or the latest time of each seed's tree, and behind these, where seeds have windows of
  // time, the earliest of each.
  std::vector<std::int64_t> times = {};
};

// Edges of a type by their ends, which carry no message in a batch: all that join a pair, or, where
// times are given and the type's edges have some, those of that time.
struct ExcludedPairs {
  int edge_type;
  std::vector<std::int64_t> src;         // [pairs]: where messages come from
  std::vector<std::int64_t> dst;         // [pairs]
  std::vector<std::int64_t> times = {};  // [pairs], or empty
};

// A batch differs from others by these.
struct BatchRequest {
  std::vector<Seeds> seeds = {};
  BatchKey key = {};                         // the same key gives the same sample
  std::vector<ExcludedPairs> excluded = {};  // at most one for each edge type
};

// A sampled subgraph, relabelled. Positions count within their node type, seeds first.
struct Sample {
  struct Edges {
    Buffer<std::int64_t> row;   // position of the neighbour (message source)
    Buffer<std::int64_t> col;   // position of the node it was drawn for
    Buffer<std::int64_t> slot;  // index into the edge type's CSC arrays

    void resize(std::int64_t size) {
      row.resize(size);
      col.resize(size);
      slot.resize(size);
    }
  };
  std::vector<Buffer<std::int64_t>> nodes;  // [node type]: global ids
  std::vector<Buffer<std::int64_t>> trees;  // [node type]: seed number, if disjoint
  std::vector<Edges> edges;                 // [edge type]
  std::vector<std::vector<std::int64_t>> num_sampled_nodes;  // [node type][hop + 1]
  std::vector<std::vector<std::int64_t>> num_sampled_edges;  // [edge type][hop]; none if induced
};

}  // namespace gz
