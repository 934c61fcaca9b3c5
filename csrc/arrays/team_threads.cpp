#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

#include "arrays/team.h"
#include "io/process.h"

namespace gz {
namespace {

std::atomic<int> usual{static_cast<int>(std::max(1U, std::thread::hardware_concurrency()))};

}  // namespace

bool threads_are_torchs() noexcept { return false; }

void set_usual_team(int threads) noexcept { usual.store(threads, std::memory_order_relaxed); }

int usual_team() noexcept { return usual.load(std::memory_order_relaxed); }

void run_team(SharedRanges& ranges, int team) {
  std::vector<std::thread> others;
  others.reserve(static_cast<std::size_t>(team));
  try {
    while (static_cast<int>(others.size()) < team - 1) {
      others.push_back(start_thread([&ranges] { ranges.take_part(); }));
    }
  } catch (const std::system_error&) {
    // The system gives no more threads: those that are there do the work.
  }
  ranges.take_part();
  for (std::thread& other : others) other.join();
}

}  // namespace gz
