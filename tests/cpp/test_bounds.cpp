// Memory that is really held, with several tables, columns and threads; and that what failed works
// once the cause is gone.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "arrays/memory_pool.h"
#include "base/errors.h"
#include "check.h"
#include "pipeline_support.h"
#include "scratch.h"

using namespace gz;
using namespace gz::test;
using namespace std::chrono_literals;

namespace {

constexpr std::int64_t kRow = 32;  // bytes

// A file whose number i is `3 i`, as rows of kRow bytes.
ColumnFile make_file(const Scratch& dir, std::int64_t rows, const std::string& name = "rows") {
  const std::string path = dir / name;
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(rows * kRow / 8));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::int64_t>(3 * i);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(numbers.data()),
             static_cast<std::streamsize>(numbers.size() * 8));
  ColumnFile file{DirectFile::open(path, false), {}};
  file.layout = {0, rows, kRow, kRow, file.file->size()};
  return file;
}

std::shared_ptr<PagedRows> paged(ColumnFile file, ResidentRows resident, std::int64_t frames = 0) {
  const DiskGatherOptions options{{ReaderKind::kAuto, 4}, 1 << 16};
  return std::make_shared<PagedRows>(std::move(resident), frames, std::move(file),
                                     std::make_shared<DiskGather>(options), ReadLimits{64, 4096});
}

std::int64_t held_bytes(const std::vector<RowWindow>& windows) {
  std::int64_t bytes = 0;
  for (const RowWindow& window : windows) bytes += window.bytes();
  return bytes;
}

// The numbers that a table gives for these rows.
std::vector<std::int64_t> numbers_of(const PagedRows& rows, const std::vector<std::int64_t>& wanted,
                                     const RowWindow& window, std::size_t list) {
  std::vector<std::int64_t> found(wanted.size() * kRow / 8);
  gather_rows(rows.table(window), window.places_of(list).span(),
              reinterpret_cast<std::byte*>(found.data()), 1);
  return found;
}

std::vector<std::int64_t> expected_numbers(const std::vector<std::int64_t>& wanted) {
  std::vector<std::int64_t> expected;
  for (const std::int64_t row : wanted) {
    for (std::int64_t i = 0; i < kRow / 8; ++i) expected.push_back(3 * (row * kRow / 8 + i));
  }
  return expected;
}

constexpr std::int64_t kBatchNumbers = 1 << 17;  // 1 MiB: the pool counts it

SamplingRun sample_numbers() {
  Sample sample;
  sample.nodes.emplace_back(kBatchNumbers);
  co_return sample;
}

}  // namespace

// Batches that share no row, over one table or three.
TEST(tables_of_a_window_share_its_room) {
  const Scratch dir;
  constexpr std::int64_t kBatches = 20, kEach = 30, kRows = kBatches * kEach;
  for (const std::int64_t tables : {1, 3}) {
    auto plan = std::make_shared<GatherPlan>();
    for (std::size_t t = 0; t < static_cast<std::size_t>(tables); ++t) {
      plan->paged.push_back(
          {t, paged(make_file(dir, kRows, std::to_string(t)), ResidentRows(kRows, 0, 0))});
    }
    plan->num_lists = plan->paged.size();
    const std::int64_t one_batch = kEach * kRow * tables;
    for (const std::int64_t room : {0 * one_batch, 3 * one_batch, 10 * one_batch}) {
      plan->windows = std::make_shared<WindowRoom>(WindowLimits{kBatches, room});
      const Recipe recipe{{}, plan, false};
      std::vector<Batch> batches(kBatches);
      std::vector<Batch*> all;
      for (std::int64_t k = 0; k < kBatches; ++k) {
        Batch& batch = batches[static_cast<std::size_t>(k)];
        for (std::size_t t = 0; t < plan->num_lists; ++t) {
          Buffer<std::int64_t>& nodes = batch.nodes.emplace_back(kEach);
          std::iota(nodes.data(), nodes.data() + kEach, k * kEach);
        }
        all.push_back(&batch);
      }
      const auto errors = read_window(recipe, all);
      CHECK(!errors.empty() && errors.front() == nullptr);
      CHECK(batches[0].window != nullptr && batches[errors.size() - 1].window != nullptr);
      const std::int64_t held = held_bytes(batches[0].window->rows);
      CHECK(held >= one_batch * std::ssize(errors));
      CHECK(held <= room + one_batch);  // one batch is read for, whatever it takes
      CHECK(std::ssize(errors) >= room / one_batch - 1);
      // Room that is not needed is left to others.
      CHECK(plan->windows->take().bytes() <= std::max<std::int64_t>(0, room - held));
    }
  }
}

// The first table would fill the room alone, but for the part that the second one took before.
TEST(tables_of_a_window_have_the_parts_that_they_took_before) {
  const Scratch dir;
  constexpr std::int64_t kBatches = 40, kMany = 31, kRows = kBatches * kMany;
  auto plan = std::make_shared<GatherPlan>();
  for (const std::size_t t : {0, 1}) {
    plan->paged.push_back(
        {t, paged(make_file(dir, kRows, std::to_string(t)), ResidentRows(kRows, 0, 0))});
  }
  plan->num_lists = 2;
  plan->windows = std::make_shared<WindowRoom>(WindowLimits{kBatches, 20 * kMany * kRow});
  const Recipe recipe{{}, plan, false};
  for (const std::int64_t count : {std::int64_t{1}, kBatches}) {
    std::vector<Batch> batches(static_cast<std::size_t>(count));
    std::vector<Batch*> all;
    for (std::int64_t k = 0; k < count; ++k) {
      Batch& batch = batches[static_cast<std::size_t>(k)];
      for (const std::int64_t rows : {kMany, std::int64_t{1}}) {
        Buffer<std::int64_t>& nodes = batch.nodes.emplace_back(rows);
        std::iota(nodes.data(), nodes.data() + rows, k * rows);
      }
      all.push_back(&batch);
    }
    CHECK(std::ssize(read_window(recipe, all)) >= std::min<std::int64_t>(count, 18));
  }
}

// Every sampler waits until the others have begun too, so that none is done while they begin.
TEST(batches_ahead_take_no_more_than_they_may) {
  constexpr std::int64_t kBytes = 8 * kBatchNumbers;
  constexpr std::int64_t kAllowed = 5 * kBytes + kBytes / 2;
  for (const bool together : {false, true}) {
    std::atomic<int> begun{0};
    int taken = 0, most = 0;
    std::mutex mutex;
    const auto count = [&] {
      const int now = ++begun;
      std::this_thread::sleep_for(1ms);
      const std::lock_guard lock(mutex);
      most = std::max(most, now - taken);
    };
    Recipe recipe;
    recipe.samples_together = together;
    recipe.begin = [&](const BatchRequest&, int) {
      count();
      return sample_numbers();
    };
    const auto shared = std::make_shared<const Recipe>(std::move(recipe));
    Batches epoch(8, kAllowed);
    const auto submit = [&](int n) {
      for (int i = 0; i < n; ++i) epoch.add(shared, {{{0, {1}, {}}}, 0});
    };
    const std::size_t before = pool_state().used;
    submit(1);  // so that it is known how much one takes
    epoch.flush();
    CHECK(epoch.get(60s) != nullptr);
    {
      const std::lock_guard lock(mutex);
      most = taken = begun = 0;
    }
    submit(30);
    epoch.flush();
    std::size_t held = 0;
    for (int i = 0; i < 30; ++i) {
      std::this_thread::sleep_for(10ms);  // what may be made meanwhile is made
      const auto batch = epoch.get(60s);
      CHECK(batch != nullptr);
      // Counted as taken only now: until then it is there, however far the others are.
      held = std::max(held, pool_state().used - before);
      const std::lock_guard lock(mutex);
      ++taken;
    }
    // Batches ahead, and the consumer's; the pool rounds up by an eighth at most.
    CHECK(most <= 6);
    CHECK(most >= 4);
    CHECK(static_cast<std::int64_t>(held) <= (kAllowed + kBytes) / 8 * 9);
  }
}

TEST(rows_that_are_kept_are_read_again_after_an_error) {
  const Scratch dir;
  constexpr std::int64_t kRows = 300;
  const std::vector<std::int64_t> first{7, 250, 20}, second{250, 8, 299};
  const IdList lists[] = {std::span<const std::int64_t>(first),
                          std::span<const std::int64_t>(second)};
  for (const std::int64_t kept : {kRows, std::int64_t{100}, std::int64_t{0}}) {
    for (const int how : {0, 1, 2}) {
      const std::int64_t frames = how < 2 ? 0 : 2;
      const auto rows = paged(make_file(dir, kRows), ResidentRows(kRows, 0, kept), frames);
      {
        const CutShort cut(dir / "rows", 9 * kRow);
        ReadStats stats;
        if (how != 1) {
          const RowWindow window = rows->read(lists, 1 << 20);
          CHECK(window.errors[0] != nullptr && window.errors[1] != nullptr);
        } else if (kept > 0) {
          CHECK_THROWS(OsError, "truncated", rows->load(0, kRows, stats));
        }
      }
      const RowWindow window = rows->read(lists, 1 << 20);
      CHECK(window.errors[0] == nullptr && window.errors[1] == nullptr);
      CHECK(numbers_of(*rows, first, window, 0) == expected_numbers(first));
      CHECK(numbers_of(*rows, second, window, 1) == expected_numbers(second));
    }
  }
}

TEST(a_reader_that_failed_reads_again) {
  const Scratch dir;
  constexpr std::int64_t kRows = 3000;
  const auto file = make_file(dir, kRows);
  std::vector<std::int64_t> wanted(kRows);
  std::iota(wanted.begin(), wanted.end(), 0);
  for (const ReaderKind kind : {ReaderKind::kAuto, ReaderKind::kPool}) {
    DiskGather reader({{kind, 4}, 1 << 16});
    std::vector<std::int64_t> out(wanted.size() * kRow / 8);
    const RowRequest request{wanted, {}, reinterpret_cast<std::byte*>(out.data())};
    const auto errors = [&] { return reader.gather(file, {&request, 1}, {64, 4096}).errors; };
    {
      const CutShort cut(dir / "rows", 1000 * kRow);
      CHECK(errors().front() != nullptr);
    }
    std::fill(out.begin(), out.end(), -1);
    CHECK(errors().front() == nullptr);
    CHECK(out == expected_numbers(wanted));
  }
}

TEST(a_paged_topology_is_sampled_again_after_an_error) {
  if (needs("posix", kCannotBeCut)) return;
  const Ring ring(400, 6);
  const auto topology = Topology::open(ring.path);
  const auto column = ColumnFile::of_indices(*topology, false);
  const DiskGatherOptions options{{ReaderKind::kAuto, 4}, 1 << 16};
  for (const std::int64_t kept : {0, 100, 2400}) {
    const auto rows =
        std::make_shared<PagedRows>(ResidentRows(2400, 0, kept), kept / 4, column,
                                    std::make_shared<DiskGather>(options), ReadLimits{64, 4096});
    const NeighborSampler sampler({{ring.nodes}, {{0, 0, csc_of(topology, rows)}}});
    const std::vector<std::int64_t> seeds{3, 200, 399};
    {
      const CutShort cut(ring.path, topology->indices_offset() + 40);
      CHECK_THROWS(OsError, "truncated", sample_of(sampler, request(seeds, {3, 2})));
    }
    CHECK(everything(sample_of(sampler, request(seeds, {3, 2}))) ==
          everything(sample_of(ring.sampler(), request(seeds, {3, 2}))));
  }
}

TEST(a_pipeline_goes_on_after_rows_were_lost) {
  const Scratch dir;
  constexpr std::int64_t kRows = 500;
  const Ring ring(kRows, 4);
  const NeighborSampler sampler = ring.sampler();
  auto plan = std::make_shared<GatherPlan>();
  plan->num_lists = 2;
  plan->paged.push_back({0, paged(make_file(dir, kRows), ResidentRows(kRows, 0, 200))});
  plan->windows = std::make_shared<WindowRoom>(WindowLimits{4, 1 << 20});
  plan->columns.push_back({0, {nullptr, kRows, kRow, kRow}, 0});
  const auto recipe = recipe_of(sampler, plan);
  Batches epoch(2, 1 << 30);
  const auto submit = [&] {
    for (std::int64_t k = 0; k < 8; ++k) {
      epoch.add(recipe, {{{0, {50 * k, 50 * k + 1}, {}}}, static_cast<std::uint64_t>(k)});
    }
    epoch.flush();
  };
  {
    const CutShort cut(dir / "rows", 0);
    submit();
    for (int k = 0; k < 8; ++k) CHECK_THROWS(OsError, "truncated", epoch.get(60s));
  }
  submit();
  for (int k = 0; k < 8; ++k) {
    const auto batch = epoch.get(60s);
    const auto nodes = batch->nodes[0].span();
    const auto expected = expected_numbers({nodes.begin(), nodes.end()});
    const auto found = batch->gathered.columns[0].rows.span();
    CHECK(found.size() == expected.size() * 8 &&
          std::memcmp(found.data(), expected.data(), found.size()) == 0);
  }
}

// A batch that becomes some hundred times as large in one hop, and then twice as large.
TEST(a_hop_brings_many_new_nodes) {
  const Ring ring(5000, 400);
  const std::vector<std::int64_t> seeds{4990};
  for (const bool disjoint : {false, true}) {
    SampleRequest asked = request(seeds, {-1, -1});
    asked.disjoint = disjoint;
    const Sample sample = sample_of(ring.sampler(), asked);
    CHECK(sample.num_sampled_nodes[0] == std::vector<std::int64_t>{1, 400, 400});
    CHECK(sample.num_sampled_edges[0] == std::vector<std::int64_t>{400, 160'000});
    for (std::int64_t i = 0; i < sample.nodes[0].size(); ++i) {
      CHECK(sample.nodes[0][i] == (4990 + i) % 5000);
    }
  }
}
