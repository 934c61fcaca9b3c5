// One batch on its way from seeds to arrays: sampled, with others given what is not in memory,
// gathered.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include "arrays/buffer.h"
#include "arrays/narrow_ids.h"
#include "gather/gather.h"
#include "gather/loan.h"
#include "sampling/sample.h"
#include "sampling/sample_window.h"

namespace gz {

// Any sampler with its fan-out: begins to sample a batch, on a number of threads.
using BeginStage = std::function<SamplingRun(BatchRequest request, int threads)>;

// How every batch of an epoch is made. Immutable; used by several threads at once.
struct Recipe {
  BeginStage begin;
  // Index lists: the nodes of each node type, then the CSC slots of each edge type. None: batches
  // are left as they were sampled.
  std::shared_ptr<const GatherPlan> plan;
  bool backward = false;  // edges were walked from source to destination: they are turned round

  // Where the topology does not fit in memory: batches are sampled together, within the limits
  // `sampled`.
  bool samples_together = false;
  WindowLimits sampled = kSampledTogether;

  static constexpr WindowLimits kSampledTogether{16, 64 << 20};

  bool reads() const noexcept { return plan != nullptr && plan->reads_ahead(); }
  // Whether batches wait for others before their rows are gathered.
  bool waits() const noexcept { return reads() || (samples_together && plan != nullptr); }
  // Number of batches whose rows are read at once, with `at_once` windows in memory at a time.
  std::size_t max_window(int at_once) const noexcept {
    const int most = plan->windows->max_batches(at_once);
    return static_cast<std::size_t>(std::min(most, plan->max_window));
  }
};

// The rows that were read for a window of batches.
struct BatchWindow {
  std::vector<RowWindow> rows;  // [paged], as in the plan
  Loan room;                    // taken by these rows
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

  // The sampler's own arrays, kept until rows are gathered: the memory pool keeps as much as was in
  // use at once, and would otherwise drop a part of them for every batch.
  std::vector<Buffer<std::int64_t>> spent;

  // While it waits to be read for, in place of nodes, trees and edges.
  struct Packed {
    std::vector<NarrowIds> nodes, trees;
    struct Edges {
      NarrowIds first, second, slot;  // halves of the index
    };
    std::vector<Edges> edges;
  };
  std::unique_ptr<Packed> packed;
  std::shared_ptr<const BatchWindow> window;  // until it is gathered
  std::size_t place_in_window = 0;

  ReadStats read;                           // of the whole window, in the first of its batches
  ReadStats topology_read;                  // the same for the batches that were sampled together
  std::chrono::nanoseconds sample_time{0};  // of those, the share of one
  std::chrono::nanoseconds gather_time{0};
  Loan loan;  // of bytes(), where an epoch made it

  std::int64_t num_nodes() const noexcept;
  std::int64_t num_edges() const noexcept;
  std::int64_t bytes() const noexcept;  // of all arrays
};

// Turns a sample into the batch's arrays.
void take_sample(const Recipe& recipe, Sample sample, Batch& batch);

// The stages, in this order; `threads` 0: as many as torch uses. Raise what the sampler and
// gather() do.
Batch sample_batch(const Recipe& recipe, const BatchRequest& request, int threads);

// One of the batches that are sampled together.
struct BatchToSample {
  const Recipe* recipe;
  const BatchRequest* request;
  Batch* batch;
  bool waits = false;  // and so is packed at once
};

// Samples all of these, whose recipes may differ. Returns for each why it cannot be made, or null;
// none at all if stopped. REQUIRES one batch or more.
std::vector<std::exception_ptr> sample_together(std::span<const BatchToSample> batches, int threads,
                                                std::stop_token stop = {});

// Reads what these batches lack, or as many first ones of them as the recipe's limits allow.
// Returns for each of those why it cannot be made, or null; none at all if stopped. REQUIRES
// recipe.reads(), and one batch or more. `at_once`: windows that are to be there at a time.
std::vector<std::exception_ptr> read_window(const Recipe& recipe, std::span<Batch* const> batches,
                                            std::stop_token stop = {}, int at_once = 1);

// A batch that has to wait takes less than half then. It is read for and gathered all the same.
void pack_batch(Batch& batch);

// Reads for this batch alone what no window brought, and raises Stopped where that is stopped.
void gather_batch(const Recipe& recipe, Batch& batch, int threads,
                  const std::stop_token& stop = {});

}  // namespace gz
