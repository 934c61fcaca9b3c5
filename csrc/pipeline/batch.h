// One batch on its way from seeds to arrays, in two stages: sample, gather.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "gather/gather.h"
#include "sampling/sample.h"

namespace gz {

// What one batch is made from. It owns its seeds.
struct BatchRequest {
  struct SeedArrays {
    int node_type;
    std::vector<std::int64_t> nodes;
    std::vector<std::int64_t> times;  // one per seed, or none
  };
  std::vector<SeedArrays> seeds;
  std::uint64_t key = 0;  // names the batch; the same key gives the same batch
};

// Any sampler with its fan-out: samples around seeds, on so many threads.
using SampleStage = std::function<Sample(std::vector<Seeds> seeds, std::uint64_t key, int threads)>;

// How every batch of an epoch is made. Immutable; used by several threads at once.
struct Recipe {
  SampleStage sample;
  // Index lists: the nodes of each node type, then the CSC slots of each edge type. None: batches
  // are left as they were sampled.
  std::shared_ptr<const GatherPlan> plan;
  bool backward = false;  // edges were walked from source to destination: they are turned round
};

// A finished batch, and what it cost.
struct Batch {
  struct Edges {
    Buffer<std::int64_t> index;  // [2, n]: positions of sources, then of destinations
    Buffer<std::int64_t> slot;   // [n]: into the edge type's CSC arrays
  };
  std::vector<Buffer<std::int64_t>> nodes;                   // [node type], as in Sample
  std::vector<Buffer<std::int64_t>> trees;                   // [node type], if disjoint
  std::vector<Edges> edges;                                  // [edge type]
  std::vector<std::vector<std::int64_t>> num_sampled_nodes;  // [node type][hop + 1]
  std::vector<std::vector<std::int64_t>> num_sampled_edges;  // [edge type][hop]
  Gathered gathered;

  std::chrono::nanoseconds sample_time{0};
  std::chrono::nanoseconds gather_time{0};

  std::int64_t num_nodes() const noexcept;
  std::int64_t num_edges() const noexcept;
  std::int64_t bytes() const noexcept;  // of all arrays
};

// The stages, in this order; each on `threads` threads (0: as many as torch uses). Raise what the
// sampler and gather() do.
Batch sample_batch(const Recipe& recipe, const BatchRequest& request, int threads);
void gather_batch(const Recipe& recipe, Batch& batch, int threads);

}  // namespace gz
