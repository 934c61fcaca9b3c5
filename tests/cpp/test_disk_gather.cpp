// gather/: read plans and rows from files, against plain loops over random tables and requests.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "check.h"
#include "gather/disk_gather.h"
#include "gather/read_plan.h"
#include "reader_support.h"
#include "scratch.h"

using namespace gz;
using namespace gz::test;

namespace {

using Lists = std::vector<std::vector<std::int64_t>>;

Lists random_lists(std::mt19937_64& random, std::int64_t num_rows, std::size_t lists,
                   std::size_t longest) {
  Lists found(lists);
  for (auto& list : found) {
    list.resize(random() % (longest + 1));
    for (std::int64_t& row : list)
      row = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(num_rows));
    if (random() % 3 == 0) std::sort(list.begin(), list.end());
  }
  return found;
}

std::vector<RowRequest> requests_for(const Lists& lists) {
  std::vector<RowRequest> requests;
  for (const auto& list : lists) requests.push_back({list, {}, nullptr});
  return requests;
}

// Bytes 0, 1, 2 … by position, so that every byte says where it was.
std::vector<std::byte> make_table(const std::string& path, std::uint64_t bytes) {
  std::vector<std::byte> table(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    table[i] = static_cast<std::byte>((i * 2654435761ULL) >> 16);
  }
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(table.data()), static_cast<std::streamsize>(bytes));
  return table;
}

// A table, batches that want rows of it, and what they should get.
struct Case {
  Case(const std::string& path, std::mt19937_64& random, RowLayout rows, std::size_t batches,
       std::size_t longest)
      : layout(rows) {
    layout.file_bytes = layout.data_offset +
                        static_cast<std::uint64_t>(layout.num_rows * layout.row_stride) +
                        random() % 5000;
    table = make_table(path, layout.file_bytes);
    lists = random_lists(random, layout.num_rows, batches, longest);
    const auto bytes = static_cast<std::size_t>(layout.row_bytes);
    for (const auto& list : lists) {
      std::vector<std::int64_t> to(list.size());
      for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<std::int64_t>(2 * i);
      std::shuffle(to.begin(), to.end(), random);
      expected.emplace_back(2 * list.size() * bytes, std::byte{0});
      for (std::size_t i = 0; i < list.size(); ++i) {
        std::memcpy(expected.back().data() + static_cast<std::size_t>(to[i]) * bytes, row(list[i]),
                    bytes);
      }
      positions.push_back(std::move(to));
    }
  }

  const std::byte* row(std::int64_t i) const {
    return table.data() + layout.data_offset + static_cast<std::uint64_t>(i * layout.row_stride);
  }

  // Fresh destinations, and requests that fill them.
  std::vector<RowRequest> requests() {
    outs.clear();
    std::vector<RowRequest> found;
    for (std::size_t k = 0; k < lists.size(); ++k) {
      outs.emplace_back(expected[k].size(), std::byte{0});
      found.push_back({lists[k], positions[k], outs.back().data()});
    }
    return found;
  }

  RowLayout layout;
  std::vector<std::byte> table;
  Lists lists, positions;
  std::vector<std::vector<std::byte>> expected, outs;
};

constexpr RowLayout rows_of(std::uint64_t offset, std::int64_t rows, std::int64_t bytes,
                            std::int64_t stride) {
  return {offset, rows, bytes, stride, 0};
}

bool complete(const GatherResult& result) {
  return !result.stopped && std::none_of(result.errors.begin(), result.errors.end(),
                                         [](const std::exception_ptr& e) { return e != nullptr; });
}

}  // namespace

TEST(read_plan_against_a_plain_loop) {
  std::mt19937_64 random(7);
  ReadPlan plan;  // used again and again, as the engine does
  for (int round = 0; round < 300; ++round) {
    RowLayout layout;
    layout.num_rows = static_cast<std::int64_t>(1 + random() % (round % 5 == 0 ? 100'000 : 50));
    layout.row_bytes = static_cast<std::int64_t>(1 + random() % (round % 3 == 0 ? 9000 : 600));
    layout.row_stride = layout.row_bytes + static_cast<std::int64_t>(random() % 100);
    layout.data_offset = random() % 10'000;
    layout.file_bytes =
        layout.data_offset + static_cast<std::uint64_t>(layout.num_rows * layout.row_stride);
    ReadLimits limits;
    limits.merge_gap = random() % 3 == 0 ? 0 : random() % 20'000;
    limits.max_read = 1 + random() % 40'000;
    limits.alignment = 1ULL << (random() % 13);
    const Lists lists = random_lists(random, layout.num_rows, random() % 5, 400);
    const auto requests = requests_for(lists);
    plan.build(layout, requests, limits);

    // Every place once, in ascending order of rows.
    std::set<std::pair<std::int64_t, std::int64_t>> places;
    std::set<std::int64_t> rows;
    std::int64_t before = 0;
    bool good = true;
    for (std::int64_t i = 0; i < plan.num_targets(); ++i) {
      const RowTarget target = plan.target(i);
      good = good && target.row >= before;
      before = target.row;
      good =
          good &&
          lists[static_cast<std::size_t>(target.request)][static_cast<std::size_t>(target.index)] ==
              target.row;
      places.emplace(target.request, target.index);
      rows.insert(target.row);
    }
    std::size_t wanted = 0;
    for (const auto& list : lists) wanted += list.size();
    CHECK(good && places.size() == wanted && plan.num_targets() == std::ssize(places));
    CHECK(plan.unique_rows() == std::ssize(rows));

    // Reads hold their rows, keep the limits, and two that could have been one are one.
    std::int64_t next = 0;
    std::uint64_t bytes = 0;
    const std::uint64_t most = ReadPlan::largest_read(layout, limits);
    for (std::size_t r = 0; r < plan.reads().size(); ++r) {
      const PlannedRead& read = plan.reads()[r];
      good = good && read.first == next && read.last > read.first && read.size <= most &&
             read.offset % limits.alignment == 0 && read.offset + read.size <= layout.file_bytes;
      good = good &&
             (read.size % limits.alignment == 0 || read.offset + read.size == layout.file_bytes);
      for (std::int64_t i = read.first; i < read.last; ++i) {
        const std::uint64_t at =
            layout.data_offset + static_cast<std::uint64_t>(plan.target(i).row * layout.row_stride);
        good = good && at >= read.offset &&
               at + static_cast<std::uint64_t>(layout.row_bytes) <= read.offset + read.size;
      }
      if (r > 0) {
        const PlannedRead& previous = plan.reads()[r - 1];
        const std::uint64_t reached = previous.offset + previous.size;
        const RowTarget first = plan.target(read.first);
        const std::uint64_t row_end =
            std::min((layout.data_offset +
                      static_cast<std::uint64_t>(first.row * layout.row_stride + layout.row_bytes) +
                      limits.alignment - 1) /
                         limits.alignment * limits.alignment,
                     layout.file_bytes);
        const bool far = read.offset > reached + limits.merge_gap;
        const bool full = std::max(row_end, reached) - previous.offset > most;
        good = good && (far || full);
      }
      next = read.last;
      bytes += read.size;
    }
    CHECK(good && next == plan.num_targets() && plan.bytes() == bytes);
  }
}

TEST(read_plan_refuses_bad_requests) {
  ReadPlan plan;
  const RowLayout layout{0, 10, 4, 4, 40};
  const std::vector<std::int64_t> good{9, 0}, late{3, 10}, early{-1};
  const std::vector<RowRequest> high{{good, {}, nullptr}, {late, {}, nullptr}};
  CHECK_THROWS(std::out_of_range, "requests[1].rows[1]: found row 10, expected 0 <= row < 10",
               plan.build(layout, high, {}));
  CHECK(plan.reads().empty() && plan.num_targets() == 0);
  const std::vector<RowRequest> low{{early, {}, nullptr}};
  CHECK_THROWS(std::out_of_range, "found row -1", plan.build(layout, low, {}));
  const std::vector<RowRequest> uneven{{good, early, nullptr}};
  CHECK_THROWS(std::invalid_argument, "positions: found 1, expected one for each of 2 rows",
               plan.build(layout, uneven, {}));
  RowLayout huge = layout;
  huge.num_rows = INT64_MAX;
  const std::vector<RowRequest> one{{good, {}, nullptr}};
  CHECK_THROWS(std::invalid_argument, "add up to at most 64", plan.build(huge, one, {}));
  plan.build({0, 0, 4, 4, 0}, {}, {});
  CHECK(plan.reads().empty());
}

// Rows that overlap are rows too: indptr[v], indptr[v + 1] for every v.
TEST(read_plan_of_overlapping_rows) {
  ReadPlan plan;
  const std::vector<std::int64_t> rows{4, 3, 0};
  const std::vector<RowRequest> requests{{rows, {}, nullptr}};
  plan.build({0, 10, 16, 8, 88}, requests, {.merge_gap = 0, .max_read = 1 << 20, .alignment = 1});
  CHECK(plan.reads().size() == 2);
  CHECK(plan.reads()[1].offset == 24 && plan.reads()[1].size == 24);
}

TEST(disk_gather_against_memory) {
  const Scratch dir;
  std::mt19937_64 random(3);
  const std::vector<RowLayout> layouts{rows_of(4096, 5000, 512, 512), rows_of(4096, 3000, 500, 512),
                                       rows_of(100, 2000, 7, 7), rows_of(0, 1, 3, 3),
                                       rows_of(4096, 40, 60'000, 60'000)};
  int number = 0;
  for (const RowLayout& layout : layouts) {
    const std::string path = dir / std::to_string(number++);
    // Some 100 KB a batch: what takes long under a sanitizer is to compare.
    const auto longest =
        static_cast<std::size_t>(std::min<std::int64_t>(500, 100'000 / layout.row_bytes));
    Case c(path, random, layout, 5, longest);
    for (const bool direct : {true, false}) {
      const ColumnFile column{DirectFile::open(path, direct), c.layout};
      for (const ReaderKind kind : kinds()) {
        for (const std::uint64_t buffer : {1ULL << 12, 1ULL << 20}) {
          DiskGather disk({{kind, 16}, buffer});
          for (const std::uint64_t gap : {0ULL, 3000ULL}) {
            const auto requests = c.requests();
            const GatherResult result = disk.gather(column, requests, {gap, 20'000, 1});
            CHECK(complete(result) && c.outs == c.expected);
            CHECK(result.stats.useful_bytes <= result.stats.bytes);
          }
        }
      }
    }
  }
}

// A batch whose rows are gone fails; the others get theirs, though they were read together.
TEST(disk_gather_from_a_file_cut_short) {
  const Scratch dir;
  std::mt19937_64 random(9);
  const std::string path = dir / "t";
  Case c(path, random, rows_of(0, 1000, 512, 512), 0, 0);
  const ColumnFile column{DirectFile::open(path), c.layout};
  std::filesystem::resize_file(path, 500 * 512 + 100);
  const std::vector<std::int64_t> kept{499, 0, 250}, lost{3, 500, 700}, mixed{499};
  for (const ReaderKind kind : kinds()) {
    std::vector<std::vector<std::byte>> outs(3, std::vector<std::byte>(3 * 512));
    const std::vector<RowRequest> requests{
        {kept, {}, outs[0].data()}, {lost, {}, outs[1].data()}, {mixed, {}, outs[2].data()}};
    DiskGather disk({{kind, 8}, 1 << 20});
    const GatherResult result = disk.gather(column, requests, {1 << 20, 1 << 20, 1});
    CHECK(!result.errors[0] && !result.errors[2] && !result.stopped);
    CHECK_THROWS(OsError,
                 "the file was truncated: cannot read row 500, 512 bytes at offset 256000 of '" +
                     path + "': Input/output error",
                 std::rethrow_exception(result.errors[1]));
    CHECK(std::memcmp(outs[0].data(), c.row(499), 512) == 0);
    CHECK(std::memcmp(outs[0].data() + 1024, c.row(250), 512) == 0);
    CHECK(std::memcmp(outs[1].data(), c.row(3), 512) == 0);
    CHECK(std::memcmp(outs[2].data(), c.row(499), 512) == 0);
  }
}

// Reads that fail one by one (EIO): this process's memory as a file, of which rows 0 to 9 are
// mapped nowhere.
TEST(disk_gather_from_a_disk_that_fails) {
  if (needs("linux", "/proc/self/mem is a file with holes that fail")) return;
  const std::vector<std::byte> table(64 * 512, std::byte{42});
  const auto base = reinterpret_cast<std::uintptr_t>(table.data());
  const auto first = static_cast<std::int64_t>(base / 512) + 1;
  const RowLayout layout{base % 512, first + 40, 512, 512, UINT64_MAX / 2};
  const ColumnFile column{DirectFile::open("/proc/self/mem", false), layout};
  const std::vector<std::int64_t> good{first, first + 30}, bad{first + 1, 5};
  for (const ReaderKind kind : kinds()) {
    std::vector<std::vector<std::byte>> outs(2, std::vector<std::byte>(2 * 512));
    const std::vector<RowRequest> requests{{good, {}, outs[0].data()}, {bad, {}, outs[1].data()}};
    DiskGather disk({{kind, 8}, 1 << 20});
    const GatherResult result = disk.gather(column, requests, {4096, 8192, 1});
    CHECK(!result.errors[0] && outs[0] == std::vector<std::byte>(1024, std::byte{42}));
    CHECK_THROWS(OsError, "cannot read row 5, 512 bytes at offset",
                 std::rethrow_exception(result.errors[1]));
    CHECK(std::memcmp(outs[1].data(), table.data(), 512) == 0);
  }
}

TEST(disk_gather_stops) {
  const Scratch dir;
  std::mt19937_64 random(11);
  Case c(dir / "t", random, rows_of(0, 20'000, 512, 512), 4, 5000);
  const ColumnFile column{DirectFile::open(dir / "t"), c.layout};
  for (const ReaderKind kind : kinds()) {
    DiskGather disk({{kind, 4}, 1 << 16});
    std::stop_source stop;
    stop.request_stop();
    const auto unread = c.requests();
    CHECK(disk.gather(column, unread, {}, stop.get_token()).stopped);
    // In the middle, or close to it.
    std::stop_source middle;
    {
      const std::jthread stopper([&] { middle.request_stop(); });
      disk.gather(column, unread, {0, 4096, 1}, middle.get_token());
    }
    const auto again = c.requests();
    CHECK(complete(disk.gather(column, again)) && c.outs == c.expected);
  }
}

TEST(disk_gather_from_several_threads) {
  const Scratch dir;
  std::mt19937_64 random(17);
  std::vector<Case> cases;
  for (int i = 0; i < 3; ++i) {
    cases.emplace_back(dir / std::to_string(i), random, rows_of(0, 4000, 200, 256), 3, 1500);
  }
  for (const ReaderKind kind : kinds()) {
    DiskGather disk({{kind, 32}, 1 << 20});
    std::atomic<int> good{0};
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < 3; ++i) {
        threads.emplace_back([&, i] {
          Case& c = cases[static_cast<std::size_t>(i)];
          const ColumnFile column{DirectFile::open(dir / std::to_string(i)), c.layout};
          for (int round = 0; round < 5; ++round) {
            const auto requests = c.requests();
            good += complete(disk.gather(column, requests)) && c.outs == c.expected;
          }
        });
      }
    }
    CHECK(good == 15);
  }
}
