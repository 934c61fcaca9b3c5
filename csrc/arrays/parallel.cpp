#include "arrays/parallel.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#include "base/chunk_sizes.h"
#include "io/process.h"

namespace gz {
namespace {

std::atomic<bool> in_forked_child{false};

[[maybe_unused]] const bool is_watching = [] {
  at_fork(nullptr, nullptr, [] { in_forked_child.store(true, std::memory_order_relaxed); });
  return true;
}();

thread_local Helpers* helpers = nullptr;

// Calls run(0) … run(ranges - 1), each once, on `team` threads.
template <class Run>
void run_team(std::int64_t ranges, int team, const Run& run) {
#ifdef GZ_TEAM_OF_STD_THREADS
  // ThreadSanitizer does not see libgomp's barriers and would call every team a race.
  std::atomic<std::int64_t> next{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < team; ++i) {
    threads.emplace_back([&] {
      for (std::int64_t range; (range = next.fetch_add(1)) < ranges;) run(range);
    });
  }
#else
#pragma omp parallel for schedule(dynamic) num_threads(team)
  for (std::int64_t range = 0; range < ranges; ++range) run(range);
#endif
}

}  // namespace

WithHelpers::WithHelpers(Helpers* own) noexcept { helpers = own; }
WithHelpers::~WithHelpers() { helpers = nullptr; }

int num_threads(int requested) {
  if (in_forked_child.load(std::memory_order_relaxed)) return 1;
  return std::max(1, requested > 0 ? requested : omp_get_max_threads());
}

void parallel_for(std::int64_t n, std::int64_t grain, int threads, RangeBody body) {
  grain = std::max<std::int64_t>(std::min(grain, chunk_sizes.range), 1);
  const std::int64_t ranges = (n + grain - 1) / grain;
  const int team = static_cast<int>(std::min<std::int64_t>(num_threads(threads), ranges));
  std::exception_ptr error;
  std::atomic<bool> failed{false};

  const auto run = [&](std::int64_t range) noexcept {
    if (failed.load(std::memory_order_relaxed)) return;
    try {
      body(range * grain, std::min(n, (range + 1) * grain));
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
    }
  };

  const auto run_all = [&](std::int64_t first, std::int64_t last) noexcept {
    for (std::int64_t range = first; range < last; ++range) run(range);
  };

  if (team > 1) {
    run_team(ranges, team, run);
  } else if (helpers != nullptr) {
    helpers->run(ranges, run_all);
  } else {
    run_all(0, ranges);
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace gz
