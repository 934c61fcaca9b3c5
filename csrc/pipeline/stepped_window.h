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

  // Samples on until sources are wanted, or every batch is made: gathered, too. Returns the slots,
  // in lists that stay until the next call; none at the end. An error is its batch's.
  std::span<const WantedList> step();
  // Where the sources of these lists go, in the same order. REQUIRES them before the next step().
  std::span<const WantedList> lists() const noexcept { return lists_; }

  // REQUIRES the end, and each number once. Raises the batch's error.
  Batch take(std::size_t number);

 private:
  std::vector<std::shared_ptr<const Recipe>> recipes_;  // [batch], as all but the last two
  std::vector<SamplingRun> runs_;
  std::vector<Batch> batches_;
  std::vector<std::exception_ptr> errors_;
  std::vector<std::size_t> going_;  // batches that are not made
  std::vector<WantedList> lists_;
  int threads_;
};

}  // namespace gz
