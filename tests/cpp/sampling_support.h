// Helpers of the samplers' tests: a ring to sample from, and samples to compare.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sampling/neighbor_sampler.h"
#include "scratch.h"

namespace gz::test {

// Everything of a sample that a caller sees.
using Seen = std::vector<std::vector<std::int64_t>>;

inline Seen everything(const Sample& sample) {
  Seen all = sample.num_sampled_nodes;
  all.insert(all.end(), sample.num_sampled_edges.begin(), sample.num_sampled_edges.end());
  const auto add = [&](const Buffer<std::int64_t>& buffer) {
    all.emplace_back(buffer.span().begin(), buffer.span().end());
  };
  for (const auto& nodes : sample.nodes) add(nodes);
  for (const auto& edges : sample.edges) {
    add(edges.row);
    add(edges.col);
    add(edges.slot);
  }
  return all;
}

// The parts that one request alone gives.
template <class Sampler, class Request>
Sample sample_of(const Sampler& sampler, Request request) {
  SamplingRun run = sampler.begin(std::move(request));
  Sample sample;
  const auto take = [&](std::size_t, Sample made) { sample = std::move(made); };
  const SampleWindow window = sample_window({&run, 1}, 0, take);
  if (window.errors.front()) std::rethrow_exception(window.errors.front());
  return sample;
}

// Reads all that is to stay in memory, a few rows at a time.
inline void load(PagedRows& rows) {
  ReadStats stats;
  for (std::int64_t group = 0; group < rows.resident().num_groups();) {
    group = rows.load(group, 100, stats);
  }
}

// For one node type and one edge type.
inline SampleRequest request(const std::vector<std::int64_t>& seeds,
                             std::vector<std::int64_t> fanout) {
  SampleRequest made;
  made.seeds = {{0, seeds}};
  made.num_neighbors = {std::move(fanout)};
  made.key = 7;
  return made;
}

// One node type, one edge type: the ring of scratch.h.
struct Ring {
  Ring(std::int64_t num_nodes, std::int64_t num_neighbors)
      : nodes(num_nodes), degree(num_neighbors) {
    write_ring(path, nodes, degree);
  }
  NeighborSampler sampler() const {
    return NeighborSampler({nodes}, {{0, 0, csc_of(Topology::open(path))}});
  }

  Scratch dir;
  std::string path = dir / "ring.gl";
  std::int64_t nodes;
  std::int64_t degree;
};

}  // namespace gz::test
