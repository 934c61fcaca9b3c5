#include "pipeline/stepped_window.h"

#include <utility>

#include "base/errors.h"

namespace gz {

SteppedWindow::SteppedWindow(std::vector<Wanted> batches, int threads)
    : batches_(batches.size()), errors_(batches.size()), threads_(threads) {
  for (auto& [recipe, request] : batches) {
    if (!recipe->samples_together) {
      throw invalid("recipe: expected one over neighbours in shards");
    }
    runs_.push_back(recipe->begin(std::move(request), threads));
    going_.push_back(recipes_.size());
    recipes_.push_back(std::move(recipe));
  }
}

std::span<const WantedList> SteppedWindow::step() {
  const auto take = [&](std::size_t k, Sample sample) {
    take_sample(*recipes_[k], std::move(sample), batches_[k]);
    gather_batch(*recipes_[k], batches_[k], threads_);
  };
  do {
    lists_ = advance(runs_, going_, errors_, take);
  } while (lists_.empty() && !going_.empty());
  return lists_;
}

Batch SteppedWindow::take(std::size_t number) {
  if (errors_.at(number)) std::rethrow_exception(errors_[number]);
  return std::move(batches_[number]);
}

}  // namespace gz
