// What the tests of pipelines share: recipes over a ring, and batches to compare.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "pipeline/pipeline.h"
#include "sampling_support.h"

namespace gz::test {

inline BatchRequest batch_request(std::uint64_t key) { return {{{0, {1, 2, 3}, {}}}, key}; }

// Four neighbours of a seed and three of each of these, for a sampler's sample() or begin().
inline SampleRequest request_of(std::vector<Seeds> seeds, BatchKey key, int threads) {
  SampleRequest asked;
  asked.seeds = std::move(seeds);
  asked.num_neighbors = {{4, 3}};
  asked.key = key;
  asked.threads = threads;
  return asked;
}

// REQUIRES that `sampler` outlives it.
inline std::shared_ptr<Recipe> recipe_of(const NeighborSampler& sampler,
                                         std::shared_ptr<const GatherPlan> plan) {
  return std::make_shared<Recipe>(
      Recipe{[&sampler](std::vector<Seeds> seeds, BatchKey key, int threads) {
               return sampler.sample(request_of(std::move(seeds), key, threads));
             },
             std::move(plan), false});
}

// The batch of a key, made by the caller.
inline Batch batch_of(const Recipe& recipe, std::uint64_t key) {
  Batch batch = sample_batch(recipe, batch_request(key), 2);
  gather_batch(recipe, batch, 2);
  return batch;
}

inline bool same(const Batch& a, const Batch& b) {
  const auto equal = [](const auto& x, const auto& y) {
    const auto s = x.span(), t = y.span();
    return std::equal(s.begin(), s.end(), t.begin(), t.end());
  };
  return equal(a.nodes[0], b.nodes[0]) && equal(a.edges[0].index, b.edges[0].index) &&
         equal(a.edges[0].slot, b.edges[0].slot) &&
         equal(a.gathered.columns[0].rows, b.gathered.columns[0].rows);
}

}  // namespace gz::test
