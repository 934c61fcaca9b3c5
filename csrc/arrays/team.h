// Threads that take part in one loop: OpenMP's (team_openmp.cpp), whose runtime is torch's, or
// plain ones (team_threads.cpp) where the engine is built with -DGZ_OPENMP=OFF.
#pragma once

#include <atomic>
#include <cstdint>

#include "arrays/parallel.h"

namespace gz {

// Ranges of a loop. REQUIRES a body that raises nothing.
class SharedRanges {
 public:
  SharedRanges(std::int64_t ranges, RangeBody run) : ranges_(ranges), run_(run) {}

  // Whether there is a range that no thread has taken.
  bool is_open() const noexcept { return next_.load(std::memory_order_relaxed) < ranges_; }

  // Calls run(r, r + 1) for each range r that no other thread has taken, until there is none.
  void take_part() noexcept {
    for (std::int64_t range; (range = next_.fetch_add(1, std::memory_order_relaxed)) < ranges_;) {
      run_(range, range + 1);
    }
  }

 private:
  const std::int64_t ranges_;
  const RangeBody run_;
  std::atomic<std::int64_t> next_{0};
};

// Returns when all ranges are done, by `team` threads, of which this is one.
void run_team(SharedRanges& ranges, int team);

// Threads of a team that is not told how many.
int usual_team() noexcept;

}  // namespace gz
