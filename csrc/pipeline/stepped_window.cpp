#include "pipeline/stepped_window.h"

#include <stdexcept>
#include <utility>

namespace gz {

SteppedWindow::SteppedWindow(std::vector<Wanted> batches, int threads) : threads_(threads) {
  batches_.reserve(batches.size());  // runs refer to the requests, which must not move
  for (Wanted& one : batches) {
    if (!one.recipe->samples_together) {
      throw std::invalid_argument("recipe: expected one over neighbours in shards");
    }
    // The run's spans are of vectors, which keep their memory when they are moved.
    SamplingRun run = one.recipe->begin(input_of(one.request), one.request.key, threads);
    batches_.push_back({std::move(one), std::move(run), {}, nullptr});
  }
}

std::span<const SourceList> SteppedWindow::step() {
  lists_.clear();
  for (Made& made : batches_) {
    if (made.is_done) continue;
    try {
      const std::size_t before = lists_.size();
      bool goes_on = true;
      while (lists_.size() == before && (goes_on = made.run.advance())) {
        for (const SourceList& list : made.run.wanted()) {
          if (list.slots.size() > 0) lists_.push_back(list);
        }
      }
      if (goes_on) continue;
      const Recipe& recipe = *made.wanted.recipe;
      take_sample(recipe, made.run.take(), made.batch);
      gather_batch(recipe, made.batch, threads_);
    } catch (...) {
      made.error = std::current_exception();
    }
    made.is_done = true;
  }
  return lists_;
}

Batch SteppedWindow::take(std::size_t number) {
  Made& made = batches_.at(number);
  if (made.error) std::rethrow_exception(made.error);
  return std::move(made.batch);
}

}  // namespace gz
