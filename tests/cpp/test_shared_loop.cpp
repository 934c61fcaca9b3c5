// pipeline/shared_loop.h: loops of one thread that others help with.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "arrays/parallel.h"
#include "check.h"
#include "pipeline/entry.h"
#include "pipeline/shared_loop.h"
#include "pipeline_support.h"

using namespace gz;
using namespace gz::test;
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

// Nanoseconds that each thread of this process has run.
std::map<std::string, std::int64_t> time_of_threads() {
  std::map<std::string, std::int64_t> found;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream(task.path() / "schedstat") >> found[task.path().filename().string()];
  }
  return found;
}

// Many nodes with wide rows, so that nearly all of the time is gathering.
struct Wide {
  Wide() : ring(30'000, 8), sampler(ring.sampler()), row(8 << 10) {
    auto plan = std::make_shared<GatherPlan>();
    plan->num_lists = 2;
    plan->columns.push_back({0, {row.data(), ring.nodes, std::ssize(row), 0}});
    recipe = recipe_of(sampler, plan);
    for (std::int64_t i = 0; i < 2000; ++i) request.seeds[0].nodes.push_back(8 * i);
  }

  Ring ring;
  NeighborSampler sampler;
  std::vector<std::byte> row;
  std::shared_ptr<const Recipe> recipe;
  BatchRequest request = batch_request(1);
};

// Runs loops alone, and counts them.
struct Counting final : Helpers {
  void run(std::int64_t ranges, RangeBody body) override {
    ++loops;
    body(0, ranges);
  }
  int loops = 0;
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

TEST(what_is_gathered_is_shared_and_what_is_sampled_is_not) {
  const Wide wide;
  Counting counting;
  Entry entry;
  entry.recipe = wide.recipe;
  entry.request = wide.request;
  run(entry, counting);
  CHECK(entry.error == nullptr && counting.loops == 0);
  entry.stage = Stage::kToGather;
  run(entry, counting);
  CHECK(entry.error == nullptr && counting.loops > 0);
}

TEST(threads_of_a_pipeline_that_have_nothing_to_do_help) {
  if (needs("linux", "/proc tells how long each thread ran")) return;
  const Wide wide;
  Batches epoch(2, 1);  // no room for a second batch
  bool helped = false;
  // A busy machine may leave one of them no core for a while.
  for (int attempt = 0; attempt < 200 && !helped; ++attempt) {
    auto before = time_of_threads();
    epoch.add(wide.recipe, wide.request);
    while (epoch.get(10ms) == nullptr) {
    }
    int busy = 0;
    for (const auto& [thread, time] : time_of_threads()) busy += time - before[thread] > 4'000'000;
    helped = busy > 1;
  }
  CHECK(helped);
}
