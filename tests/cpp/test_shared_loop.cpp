// pipeline/shared_loop.h: loops of one thread that others help with.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "arrays/parallel.h"
#include "check.h"
#include "pipeline/shared_loop.h"

using namespace gz;
using namespace std::chrono_literals;

namespace {

// A loop and threads that wait for it.
struct Crew {
  explicit Crew(int size) {
    for (int i = 0; i < size; ++i) threads.emplace_back([this] { work(); });
  }
  ~Crew() {
    {
      const std::lock_guard lock(mutex);
      closing = true;
    }
    idle.notify_all();
  }

  void work() {
    std::unique_lock lock(mutex);
    while (true) {
      idle.wait(lock, [&] { return closing || loop.is_open(); });
      if (closing) return;
      loop.help(lock);
    }
  }

  std::mutex mutex;
  std::condition_variable idle;
  SharedLoop loop{mutex, idle};
  bool closing = false;
  std::vector<std::jthread> threads;
};

}  // namespace

TEST(each_range_is_run_once_and_by_those_that_are_free) {
  Crew crew(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::atomic<int>> runs(64);
    crew.loop.run(64, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) ++runs[static_cast<std::size_t>(r)];
    });
    bool once = true;
    for (const auto& count : runs) once = once && count == 1;
    CHECK(once);
  }
  // It ends only if four threads are in it at the same time.
  std::atomic<int> here{0};
  crew.loop.run(64, [&](std::int64_t, std::int64_t) {
    ++here;
    while (here < 4) std::this_thread::yield();
  });
  CHECK(here == 64);
}

TEST(a_loop_beside_another_and_a_short_one_are_their_threads_alone) {
  Crew crew(1);
  std::atomic<bool> begun{false}, over{false};
  std::jthread first([&] {
    crew.loop.run(8, [&](std::int64_t, std::int64_t) {
      begun = true;
      while (!over) std::this_thread::yield();
    });
  });
  while (!begun) std::this_thread::yield();
  const auto mine = std::this_thread::get_id();
  const auto is_alone = [&](std::int64_t ranges) {
    std::int64_t count = 0;
    bool alone = true;
    crew.loop.run(ranges, [&](std::int64_t begin, std::int64_t end) {
      alone = alone && std::this_thread::get_id() == mine;
      count += end - begin;
    });
    return alone && count == ranges;
  };
  CHECK(is_alone(64));
  over = true;
  first.join();
  CHECK(is_alone(7));
}

TEST(a_loop_that_asks_for_one_thread_is_shared_and_raises_here) {
  Crew crew(2);
  std::int64_t sum = 0;
  std::mutex adding;
  const auto add = [&](std::int64_t begin, std::int64_t end) {
    const std::lock_guard lock(adding);
    for (std::int64_t i = begin; i < end; ++i) sum += i;
  };
  {
    const WithHelpers helped(&crew.loop);
    parallel_for(1000, 10, 1, add);
    CHECK(sum == 499500);
    std::atomic<int> here{0};
    parallel_for(100, 1, 1, [&](std::int64_t, std::int64_t) {
      ++here;
      while (here < 3) std::this_thread::yield();
    });
    CHECK(here == 100);
    bool raised = false;
    try {
      parallel_for(100, 1, 1, [](std::int64_t begin, std::int64_t) {
        if (begin == 99) throw std::runtime_error("the last");
      });
    } catch (const std::runtime_error&) {
      raised = true;
    }
    CHECK(raised);
  }
  bool alone = true;
  const auto mine = std::this_thread::get_id();
  parallel_for(100, 1, 1, [&](std::int64_t, std::int64_t) {
    alone = alone && std::this_thread::get_id() == mine;
    std::this_thread::sleep_for(100us);
  });
  CHECK(alone);
}
