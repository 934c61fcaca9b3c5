// One batch of an epoch: how far it is, and how its stages are done without the epoch's lock.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <stop_token>
#include <vector>

#include "arrays/parallel.h"
#include "pipeline/batch.h"

namespace gz {

enum class Stage { kToSample, kToRead, kReading, kToGather, kDone };

struct Entry {
  std::shared_ptr<const Recipe> recipe;
  BatchRequest request;
  std::uint64_t number = 0;
  Batch batch;
  std::exception_ptr error;
  Stage stage = Stage::kToSample;
  bool running = false;
  bool is_last = false;  // of what is to come for now
  bool is_in_window = false;

  // Whether it is to be sampled together with others.
  bool is_of_window() const noexcept {
    return stage == Stage::kToSample && recipe->samples_together;
  }
  // In place of the batch.
  void fail(std::exception_ptr why) noexcept {
    error = std::move(why);
    batch = Batch{};
  }
};

// Samples it, alone, or gathers it, which others help with; an error is the entry's.
void run(Entry& entry, Helpers& helpers, const std::stop_token& stop = {}) noexcept;

// Samples these together. Returns for each why it cannot be made, or null.
std::vector<std::exception_ptr> sample_for(const std::vector<Entry*>& window,
                                           std::stop_token stop) noexcept;

// Reads for these, or as many first ones as one window holds; returns the same for those.
std::vector<std::exception_ptr> read_for(const std::vector<Entry*>& window, std::stop_token stop,
                                         int at_once) noexcept;

}  // namespace gz
