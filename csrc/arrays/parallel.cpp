#include "arrays/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>

#include "arrays/team.h"
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

}  // namespace

WithHelpers::WithHelpers(Helpers* own) noexcept { helpers = own; }
WithHelpers::~WithHelpers() { helpers = nullptr; }

int num_threads(int requested) {
  if (in_forked_child.load(std::memory_order_relaxed)) return 1;
  return std::max(1, requested > 0 ? requested : usual_team());
}

void parallel_for(std::int64_t n, std::int64_t grain, int threads, RangeBody body) {
  grain = std::max<std::int64_t>(std::min(grain, chunk_sizes.range), 1);
  const std::int64_t ranges = (n + grain - 1) / grain;
  const int team = static_cast<int>(std::min<std::int64_t>(num_threads(threads), ranges));
  std::exception_ptr error;
  std::atomic<bool> failed{false};

  const auto run = [&](std::int64_t first, std::int64_t last) noexcept {
    for (std::int64_t range = first; range < last; ++range) {
      if (failed.load(std::memory_order_relaxed)) return;
      try {
        body(range * grain, std::min(n, (range + 1) * grain));
      } catch (...) {
        if (!failed.exchange(true)) error = std::current_exception();
      }
    }
  };

  if (team > 1) {
    SharedRanges shared(ranges, run);
    run_team(shared, team);
  } else if (helpers != nullptr) {
    helpers->run(ranges, run);
  } else {
    run(0, ranges);
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace gz
