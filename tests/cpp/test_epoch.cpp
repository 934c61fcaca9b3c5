// pipeline/: order, errors, back-pressure, and closing.
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "pipeline/fork_gate.h"
#include "pipeline_support.h"

using namespace gz;
using namespace gz::test;
using namespace std::chrono_literals;

namespace {

// Waits until `count` is `expected`, or gives up after a minute.
bool comes_to(const std::atomic<int>& count, int expected) {
  for (int i = 0; i < 60'000 && count.load() < expected; ++i) std::this_thread::sleep_for(1ms);
  return count.load() == expected;
}

}  // namespace

TEST(batches_come_in_order_and_are_those_made_in_line) {
  const RingLoading loading;
  const Recycling recycling(true);
  for (const int threads : {1, 2, 5}) {
    Batches epoch(threads, kPlenty);
    bool same = true;
    for (std::uint64_t key = 0; key < 60; ++key) {
      epoch.add(loading.recipe, batch_request(key));
      if (key < 7) continue;
      same = same && test::same(*wait(epoch), loading.inline_batch(key - 7));
    }
    CHECK(same);
    CHECK(epoch.end() - epoch.next() == 7);
  }
}

TEST(an_error_comes_in_place_of_its_batch) {
  const auto recipe = doing([](std::uint64_t key) {
    if (key % 3 == 1) throw std::out_of_range("batch " + std::to_string(key));
  });
  Batches epoch(3, kPlenty);
  for (std::uint64_t key = 0; key < 30; ++key) epoch.add(recipe, batch_request(key));
  for (std::uint64_t key = 0; key < 30; ++key) {
    if (key % 3 == 1) {
      CHECK_THROWS(std::out_of_range, "batch " + std::to_string(key), wait(epoch));
    } else {
      CHECK(wait(epoch)->nodes.size() == 1);
    }
  }
  CHECK_THROWS(std::logic_error, "no batch was added", epoch.get(0ms));
}

TEST(batches_ahead_are_bounded_by_bytes) {
  std::atomic<int> begun{0};
  const auto count = [&](std::uint64_t) {
    ++begun;
    std::this_thread::sleep_for(20ms);  // by then all threads are there
  };
  const auto recipe = doing(count, 1000);  // 8000 bytes each
  Batches epoch(8, 25000);
  for (std::uint64_t key = 0; key < 20; ++key) epoch.add(recipe, batch_request(key));
  CHECK(comes_to(begun, 3));
  std::this_thread::sleep_for(50ms);
  CHECK(begun.load() == 3);
  for (int i = 0; i < 20; ++i) wait(epoch);
  CHECK(begun.load() == 20);

  Batches tight(2, 1);  // nothing fits: one at a time
  for (std::uint64_t key = 0; key < 20; ++key) tight.add(recipe, batch_request(key));
  for (int i = 0; i < 20; ++i) wait(tight);
  CHECK(begun.load() == 40);
}

TEST(what_the_consumer_has_leaves_less_room) {
  std::atomic<int> begun{0};
  const auto recipe = doing([&](std::uint64_t) { ++begun; }, 1000);  // 8000 bytes each
  Batches epoch(2, 25000);
  for (std::uint64_t key = 0; key < 12; ++key) epoch.add(recipe, batch_request(key));
  std::unique_ptr<Batch> first = wait(epoch), second = wait(epoch);
  std::this_thread::sleep_for(20ms);
  CHECK(begun.load() == 3);
  first.reset();
  CHECK(comes_to(begun, 4));
  Loan part = second->loan.split(5000);
  second.reset();  // but for that part
  std::this_thread::sleep_for(20ms);
  CHECK(begun.load() == 4);
  part = Loan();
  CHECK(comes_to(begun, 5));
  // A consumer that keeps all of them gets all of them.
  std::vector<std::unique_ptr<Batch>> kept;
  while (epoch.end() - epoch.next() > 0) kept.push_back(wait(epoch));
  CHECK(kept.size() == 10 && begun.load() == 12);
}

TEST(patience_ends) {
  std::mutex held;
  std::unique_lock lock(held);
  Batches epoch(1, kPlenty);
  epoch.add(doing([&](std::uint64_t) { const std::lock_guard wait(held); }), batch_request(0));
  CHECK(epoch.get(1ms) == nullptr);
  lock.unlock();
  CHECK(wait(epoch) != nullptr);
}

TEST(closing_drops_what_is_not_begun) {
  std::atomic<int> begun{0};
  std::atomic<bool> goes_on{false};
  const auto recipe = doing([&](std::uint64_t key) {
    ++begun;
    while (key > 0 && !goes_on) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(5ms);
  });
  Batches epoch(2, kPlenty);
  for (std::uint64_t key = 0; key < 1000; ++key) epoch.add(recipe, batch_request(key));
  wait(epoch);
  goes_on = true;
  epoch.close();
  CHECK(begun.load() < 100);
  CHECK_THROWS(std::logic_error, "closed", epoch.add(recipe, batch_request(0)));
  CHECK_THROWS(std::logic_error, "closed", epoch.get(0ms));
  epoch.close();
  CHECK(recipe.use_count() == 1);
}

TEST(closing_wakes_whoever_waits) {
  for (int i = 0; i < 20; ++i) {
    std::mutex held;
    std::unique_lock lock(held);
    Batches epoch(1, kPlenty);
    epoch.add(doing([&](std::uint64_t) { const std::lock_guard wait(held); }), batch_request(0));
    std::thread consumer([&] { CHECK_THROWS(std::logic_error, "closed", epoch.get(10s)); });
    std::thread closer([&] { epoch.close(); });
    consumer.join();
    lock.unlock();
    closer.join();
  }
}

// This happens at the end of an interpreter whose daemon thread drops its iterator.
TEST(two_may_close_at_once) {
  for (int i = 0; i < 20; ++i) {
    std::atomic<int> under_way{0}, begun{0};
    const auto recipe = doing([&](std::uint64_t) {
      ++under_way;
      ++begun;
      std::this_thread::sleep_for(2ms);
      --under_way;
    });
    auto epoch = std::make_unique<Batches>(2, kPlenty);
    for (std::uint64_t key = 0; key < 8; ++key) epoch->add(recipe, batch_request(key));
    while (begun.load() == 0) std::this_thread::yield();
    std::atomic<int> after{0};
    std::vector<std::thread> closers;
    for (int k = 0; k < 2; ++k) {
      closers.emplace_back([&] {
        epoch->close();
        after += under_way.load();
      });
    }
    for (std::thread& closer : closers) closer.join();
    CHECK(after.load() == 0);  // both waited for what was under way
    epoch.reset();
    CHECK(recipe.use_count() == 1);
  }
}

TEST(batches_go_by_their_numbers) {
  const RingLoading loading;
  Epoch epoch(1, kPlenty, 7);
  CHECK(epoch.next() == 7 && epoch.end() == 7);
  CHECK_THROWS(std::logic_error, "no batch was added", epoch.get(7, 0ms));
  CHECK_THROWS(std::invalid_argument, "batch: found number 8, expected 7",
               epoch.add(8, loading.recipe, batch_request(8)));
  for (std::uint64_t number = 7; number < 10; ++number) {
    epoch.add(number, loading.recipe, batch_request(number));
  }
  CHECK(epoch.next() == 7 && epoch.end() == 10);
  CHECK_THROWS(std::logic_error, "batch: found number 8, expected 7", epoch.get(8, 0ms));
  CHECK(test::same(*epoch.get(7, 60s), loading.inline_batch(7)));
  CHECK(epoch.next() == 8);
  CHECK_THROWS(std::logic_error, "batch: found number 7, expected 8", epoch.get(7, 0ms));
  CHECK(test::same(*epoch.get(8, 60s), loading.inline_batch(8)));
}

namespace {

// Samples a ring of which no neighbour is in memory, and gathers as RingLoading does.
struct PagedLoading : RingLoading {
  explicit PagedLoading(int max_batches, bool gathers = true, std::int64_t num_nodes = 500)
      : RingLoading(num_nodes) {
    const auto file = Topology::open(ring.path);
    const auto disk = std::make_shared<DiskGather>(DiskGatherOptions{{ReaderKind::kPool, 4}});
    const auto pages = std::make_shared<PagedRows>(
        ResidentRows(static_cast<std::int64_t>(file->num_edges()), 10, 0), 0,
        ColumnFile::of_indices(*file), disk, ReadLimits{0, 4096, 1});
    paged =
        std::make_shared<NeighborSampler>(SampledGraph{{num_nodes}, {{0, 0, csc_of(file, pages)}}});
    auto made = std::make_shared<Recipe>();
    made->plan = gathers ? recipe->plan : nullptr;
    made->samples_together = true;
    made->sampled.max_batches = max_batches;
    made->begin = [this](BatchRequest batch, int threads) {
      ++begun;
      return paged->begin(request_of(std::move(batch), threads));
    };
    windowed = std::move(made);
  }

  std::shared_ptr<const NeighborSampler> paged;
  std::shared_ptr<const Recipe> windowed;
  std::atomic<int> begun{0};
};

}  // namespace

TEST(batches_sampled_together_are_those_made_in_line) {
  const Recycling recycling(true);
  for (const int threads : {1, 2, 5}) {
    for (const int window : {1, 3, 8}) {
      const PagedLoading loading(window);
      Batches epoch(threads, kPlenty);
      bool same = true;
      for (std::uint64_t key = 0; key < 40; ++key) {
        // Others between them, which do not wait.
        epoch.add(key % 11 == 5 ? loading.recipe : loading.windowed, batch_request(key));
        if (key < 17) continue;
        same = same && test::same(*wait(epoch), loading.inline_batch(key - 17));
      }
      epoch.flush();
      for (std::uint64_t key = 23; key < 40; ++key) {
        same = same && test::same(*wait(epoch), loading.inline_batch(key));
      }
      CHECK(same && epoch.end() - epoch.next() == 0);
    }
  }
  // In line, a batch is a window of one.
  const PagedLoading loading(4);
  Batch batch = sample_batch(*loading.windowed, batch_request(3), 2);
  gather_batch(*loading.windowed, batch, 2);
  CHECK(test::same(batch, loading.inline_batch(3)) && batch.topology_read.rows > 0);
}

TEST(a_window_is_sampled_when_it_is_full_or_wanted_or_the_last) {
  const PagedLoading loading(4);
  Batches epoch(2, kPlenty);
  const auto submit = [&](std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t key = first; key < first + count; ++key) {
      epoch.add(loading.windowed, batch_request(key));
    }
  };
  submit(0, 4);  // the first one alone
  CHECK(wait(epoch)->topology_read.rows > 0);
  std::this_thread::sleep_for(20ms);
  CHECK(loading.begun.load() == 1 && !epoch.is_ready());
  submit(4, 1);  // full
  CHECK(comes_to(loading.begun, 5));
  std::vector<std::int64_t> rows;
  for (int i = 0; i < 4; ++i) rows.push_back(wait(epoch)->topology_read.rows);
  CHECK(rows[0] > 0 && rows[1] == 0 && rows[2] == 0 && rows[3] == 0);
  submit(5, 2);
  CHECK(wait(epoch)->topology_read.rows > 0);  // wanted
  CHECK(wait(epoch)->topology_read.rows == 0 && loading.begun.load() == 7);
  submit(7, 3);
  epoch.flush();  // the last
  CHECK(comes_to(loading.begun, 10));
  submit(10, 6);
  CHECK(comes_to(loading.begun, 14));  // a full one, and two that wait
  for (int i = 0; i < 9; ++i) wait(epoch);
  CHECK(loading.begun.load() == 16);
}

TEST(windows_grow_from_one_batch) {
  const PagedLoading loading(64);
  Batches epoch(1, kPlenty);
  for (std::uint64_t key = 0; key < 40; ++key) epoch.add(loading.windowed, batch_request(key));
  epoch.flush();
  std::vector<std::uint64_t> firsts;
  for (std::uint64_t key = 0; key < 40; ++key) {
    if (wait(epoch)->topology_read.rows > 0) firsts.push_back(key);
  }
  CHECK((firsts == std::vector<std::uint64_t>{0, 1, 5, 21}));
}

TEST(errors_in_a_window_come_in_place_of_their_batches) {
  const PagedLoading loading(5);
  Batches epoch(2, kPlenty);
  for (std::uint64_t key = 0; key < 10; ++key) {
    BatchRequest asked = batch_request(key);
    if (key % 5 == 2) asked.seeds[0].nodes[1] = 500;
    epoch.add(loading.windowed, asked);
  }
  for (std::uint64_t key = 0; key < 10; ++key) {
    if (key % 5 == 2) {
      CHECK_THROWS(std::out_of_range, "seed 1: found node 500", wait(epoch));
    } else {
      CHECK(test::same(*wait(epoch), loading.inline_batch(key)));
    }
  }
}

TEST(windows_ahead_are_bounded_by_bytes) {
  for (const bool gathers : {false, true}) {
    PagedLoading loading(4, gathers);
    const std::int64_t size = [&] {
      Batch batch = sample_batch(*loading.windowed, batch_request(0), 1);
      gather_batch(*loading.windowed, batch, 1);
      return batch.bytes();
    }();
    loading.begun = 0;
    // The first window is sampled before anyone knows how large batches are.
    Batches epoch(2, 3 * size);
    for (std::uint64_t key = 0; key < 24; ++key) epoch.add(loading.windowed, batch_request(key));
    std::this_thread::sleep_for(30ms);
    if (!gathers) CHECK(loading.begun.load() <= 8);
    bool same = true;
    for (std::uint64_t key = 0; key < 24; ++key) {
      const auto batch = wait(epoch);
      same = same && (!gathers || test::same(*batch, loading.inline_batch(key)));
    }
    CHECK(same && loading.begun.load() == 24);
  }
}

// Windows are sampled by two threads, and a later one may be sampled first: it is not to take the
// room of those that are needed before it.
TEST(the_next_batch_is_made_as_soon_as_there_is_room) {
  PagedLoading loading(4);
  std::int64_t most = 0;
  for (std::uint64_t key = 0; key < 40; ++key) {
    most = std::max(most, loading.inline_batch(key).bytes());
  }
  for (int round = 0; round < 5; ++round) {
    Batches epoch(2, 2 * most);
    for (std::uint64_t key = 0; key < 40; ++key) epoch.add(loading.windowed, batch_request(key));
    epoch.flush();
    std::unique_ptr<Batch> last;
    bool ready = true;
    for (std::uint64_t key = 0; key < 40; ++key) {
      // The loop does not wait for it: there is room beside the last one.
      for (int i = 0; i < 5000 && !epoch.is_ready(); ++i) std::this_thread::sleep_for(1ms);
      ready = ready && epoch.is_ready();
      last = wait(epoch);
    }
    CHECK(ready);
  }
}

TEST(batches_are_gathered_while_all_windows_are_sampled_that_may_be) {
  const PagedLoading loading(4);
  std::atomic<int> sampling{0};
  std::atomic<bool> goes_on{false};
  auto slow = std::make_shared<Recipe>(*loading.windowed);
  slow->begin = [&](BatchRequest batch, int threads) {
    if (batch.key >= 5) ++sampling;
    while (batch.key >= 5 && !goes_on) std::this_thread::sleep_for(1ms);
    return loading.windowed->begin(std::move(batch), threads);
  };
  const std::int64_t size = loading.inline_batch(0).bytes();
  Batches epoch(2, 3 * size);  // so that not all of them are gathered before
  for (std::uint64_t key = 0; key < 13; ++key) epoch.add(slow, batch_request(key));
  std::unique_ptr<Batch> last = wait(epoch);
  CHECK(comes_to(sampling, 2));
  for (std::uint64_t key = 1; key < 5; ++key) {
    last = epoch.get(10s);
    CHECK(last != nullptr && test::same(*last, loading.inline_batch(key)));
  }
  goes_on = true;
  for (std::uint64_t key = 5; key < 13; ++key) {
    CHECK(test::same(*wait(epoch), loading.inline_batch(key)));
  }
}

TEST(closing_stops_what_a_window_reads) {
  for (int round = 0; round < 6; ++round) {
    const PagedLoading loading(8, true, 200'000);
    Batches epoch(2, kPlenty);
    std::vector<std::int64_t> nodes(5'000);
    for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i] = static_cast<std::int64_t>(i * 36);
    for (std::uint64_t key = 0; key < 32; ++key) {
      epoch.add(loading.windowed, {{{0, nodes, {}}}, key});
    }
    while (loading.begun.load() < 2) std::this_thread::yield();  // the first is of one batch
    std::this_thread::sleep_for(std::chrono::milliseconds(round));
    epoch.close();
    CHECK(loading.begun.load() <= 32);
    CHECK_THROWS(std::logic_error, "closed", epoch.get(0ms));
  }
}
