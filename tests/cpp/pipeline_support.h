// Recipes over a ring, epochs and batches for tests.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "pipeline/epoch.h"
#include "sampling_support.h"

namespace gz::test {

inline BatchRequest batch_request(std::uint64_t key) { return {{{0, {1, 2, 3}, {}}}, key}; }

// Four neighbours of a seed and three of each of these, for a sampler's begin().
inline SampleRequest request_of(BatchRequest batch, int threads) {
  SampleRequest asked{std::move(batch)};
  asked.num_neighbors = {{4, 3}};
  asked.threads = threads;
  return asked;
}

// REQUIRES that `sampler` outlives it.
inline std::shared_ptr<Recipe> recipe_of(const NeighborSampler& sampler,
                                         std::shared_ptr<const GatherPlan> plan) {
  return std::make_shared<Recipe>(Recipe{[&sampler](BatchRequest batch, int threads) {
                                           return sampler.begin(
                                               request_of(std::move(batch), threads));
                                         },
                                         std::move(plan)});
}

// The batch of a key, made by the caller.
inline Batch batch_of(const Recipe& recipe, std::uint64_t key) {
  Batch batch = sample_batch(recipe, batch_request(key), 2);
  gather_batch(recipe, batch, 2);
  return batch;
}

// An epoch whose batches are added and asked for one after the other.
class Batches : public Epoch {
 public:
  using Epoch::Epoch;
  void add(std::shared_ptr<const Recipe> recipe, BatchRequest request) {
    Epoch::add(end(), std::move(recipe), std::move(request));
  }
  std::unique_ptr<Batch> get(std::chrono::milliseconds patience) {
    return Epoch::get(next(), patience);
  }
};

// Room for all batches.
inline constexpr std::int64_t kPlenty = std::int64_t{1} << 40;

// Samples a ring and gathers one column by node.
struct RingLoading {
  explicit RingLoading(std::int64_t num_nodes = 500) : ring(num_nodes, 8), sampler(ring.sampler()) {
    for (std::int64_t i = 0; i < num_nodes; ++i) column.push_back(i * 10);
    auto plan = std::make_shared<GatherPlan>();
    plan->num_lists = 2;
    plan->columns.push_back(
        {0, {reinterpret_cast<const std::byte*>(column.data()), num_nodes, 8, 8}});
    recipe = recipe_of(sampler, plan);
  }

  Batch inline_batch(std::uint64_t key) const { return batch_of(*recipe, key); }

  Ring ring;
  NeighborSampler sampler;
  std::vector<std::int64_t> column;
  std::shared_ptr<const Recipe> recipe;
};

inline std::unique_ptr<Batch> wait(Batches& epoch) {
  std::unique_ptr<Batch> batch;
  while ((batch = epoch.get(std::chrono::milliseconds(10))) == nullptr) {
  }
  return batch;
}

// A recipe that does what `body` says and samples nothing.
inline std::shared_ptr<const Recipe> doing(std::function<void(std::uint64_t key)> body,
                                           std::int64_t size = 1) {
  return std::make_shared<Recipe>(
      Recipe{[body = std::move(body), size](BatchRequest batch, int) -> SamplingRun {
               body(batch.key);
               Sample sample;
               sample.nodes.emplace_back(size);
               co_return sample;
             },
             nullptr});
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
