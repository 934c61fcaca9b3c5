// Batches whose neighbours other machines have: sampled together, step by step, by a caller that
// fetches the sources of slots between the steps.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "pipeline/batch.h"

namespace gz {

// Thread safety: one thread at a time.
class SteppedWindow {
 public:
  struct Wanted {
    std::shared_ptr<const Recipe> recipe;
    BatchRequest request;
  };

  // `threads` 0: as many as torch uses. Raises std::invalid_argument for a recipe that asks for no
  // sources.
  SteppedWindow(std::vector<Wanted> batches, int threads);
  SteppedWindow(const SteppedWindow&) = delete;
  SteppedWindow& operator=(const SteppedWindow&) = delete;

  // Samples on until every batch wants sources or is made: gathered, too. Returns the slots, in
  // lists that stay until the next call; none at the end. An error is its batch's.
  std::span<const SourceList> step();
  // Where the sources of these lists go, in the same order. REQUIRES them before the next step().
  std::span<const SourceList> lists() const noexcept { return lists_; }

  std::size_t size() const noexcept { return batches_.size(); }
  // REQUIRES the end, and each number once. Raises the batch's error.
  Batch take(std::size_t number);

 private:
  struct Made {
    Wanted wanted;
    SamplingRun run;
    Batch batch;
    std::exception_ptr error;
    bool is_done = false;
  };

  std::vector<Made> batches_;
  std::vector<SourceList> lists_;
  int threads_;
};

}  // namespace gz
