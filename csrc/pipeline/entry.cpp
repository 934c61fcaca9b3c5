#include "pipeline/entry.h"

#include <span>
#include <utility>

#include "pipeline/fork_gate.h"

namespace gz {

void run(Entry& entry, Helpers& helpers, const std::stop_token& stop) noexcept {
  const Job job;
  try {
    if (entry.stage == Stage::kToSample) {
      entry.batch = sample_batch(*entry.recipe, entry.request, 1);
      if (entry.recipe->reads()) pack_batch(entry.batch);
    } else {
      const WithHelpers helped(&helpers);
      gather_batch(*entry.recipe, entry.batch, 1, stop);
    }
  } catch (...) {
    entry.fail(std::current_exception());
  }
}

std::vector<std::exception_ptr> sample_for(const std::vector<Entry*>& window,
                                           std::stop_token stop) noexcept {
  const Job job;
  std::vector<BatchToSample> batches;
  for (Entry* entry : window) {
    const Recipe& recipe = *entry->recipe;
    batches.push_back({&recipe, &entry->request, &entry->batch, recipe.waits()});
  }
  try {
    return sample_together(batches, 1, std::move(stop));
  } catch (...) {
    return std::vector<std::exception_ptr>(window.size(), std::current_exception());
  }
}

std::vector<std::exception_ptr> read_for(const std::vector<Entry*>& window, std::stop_token stop,
                                         int at_once) noexcept {
  const Job job;
  std::vector<Batch*> batches;
  for (Entry* entry : window) batches.push_back(&entry->batch);
  const Recipe& recipe = *window.front()->recipe;
  for (std::size_t count = batches.size();; count = 1) {
    try {
      return read_window(recipe, std::span(batches).first(count), stop, at_once);
    } catch (...) {
      // It is not known which batch is at fault: each is made alone, the first one now.
      if (count == 1) return {std::current_exception()};
    }
  }
}

}  // namespace gz
