// gather/paged_rows and the epoch over it: batches whose rows are read for a window of them are
// those that find every row in memory; a file that is cut short fails only who needs what is lost.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "check.h"
#include "pipeline_support.h"
#include "scratch.h"

using namespace gz;
using namespace gz::test;
using namespace std::chrono_literals;

namespace {

constexpr std::int64_t kRow = 3;  // int64 numbers in a row

// A table in memory and in a file: number c of row r is 10 r + c.
struct Table {
  Table(const std::string& path, std::int64_t rows) : num_rows(rows), path(path) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < kRow; ++c) numbers.push_back(10 * r + c);
    }
    write();
  }
  void write() const {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(numbers.data()),
               static_cast<std::streamsize>(numbers.size() * sizeof(std::int64_t)));
  }

  std::int64_t row_bytes() const { return kRow * static_cast<std::int64_t>(sizeof(std::int64_t)); }
  RowTable in_memory() const {
    return {reinterpret_cast<const std::byte*>(numbers.data()), num_rows, row_bytes(), row_bytes()};
  }
  ColumnFile file(bool direct = true) const {
    ColumnFile file{DirectFile::open(path, direct), {}};
    file.layout = {0, num_rows, row_bytes(), row_bytes(), file.file->size()};
    return file;
  }
  std::shared_ptr<PagedRows> paged(ResidentRows resident, bool direct = true,
                                   std::int64_t frames = 0) const {
    const DiskGatherOptions options{{ReaderKind::kAuto, 4}, 1 << 16};
    return std::make_shared<PagedRows>(std::move(resident), frames, this->file(direct),
                                       std::make_shared<DiskGather>(options), ReadLimits{64, 4096});
  }

  std::int64_t num_rows;
  std::string path;
  std::vector<std::int64_t> numbers;
};

// Groups of 2^bits rows of a table, in an order of their own: by places, and in a file.
struct Copy {
  Copy(const std::string& path, const Table& of, std::vector<std::int32_t> groups, int bits = 0)
      : table(path, std::ssize(groups) << bits),
        order(std::make_shared<RowOrder>(groups, of.num_rows, bits)) {
    table.numbers.clear();
    for (const std::int64_t group : groups) {
      const auto* const rows = of.numbers.data() + (group << bits) * kRow;
      table.numbers.insert(table.numbers.end(), rows, rows + (kRow << bits));
    }
    table.write();
  }

  PagedRows paged(const Table& of, std::int64_t resident, std::int64_t frames) const {
    const DiskGatherOptions options{{ReaderKind::kAuto, 4}, 1 << 16};
    return PagedRows(ResidentRows(order->num_places(), order->group_bits(), resident), frames,
                     of.file(), std::make_shared<DiskGather>(options), {64, 4096},
                     {order, table.file()});
  }

  Table table;
  std::shared_ptr<const RowOrder> order;
};

// Whether a window has a list's rows.
bool has_rows(const PagedRows& paged, const RowWindow& window, std::size_t list,
              std::span<const std::int64_t> wanted) {
  const Buffer<std::int64_t> at = window.places_of(list);
  std::vector<std::int64_t> got(kRow * wanted.size());
  copy_rows(paged.table(window), at.data(), at.size(), reinterpret_cast<std::byte*>(got.data()));
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] != 10 * wanted[i / kRow] + static_cast<std::int64_t>(i % kRow)) return false;
  }
  return at.size() == std::ssize(wanted);
}

ResidentRows random_rows(std::mt19937_64& random, std::int64_t num_rows) {
  const int bits = static_cast<int>(random() % 4);
  const std::int64_t groups = (num_rows + (1 << bits) - 1) >> bits;
  return {num_rows, bits, static_cast<std::int64_t>(random() % (std::uint64_t)(groups + 1))};
}

// Samples a ring and gathers a row for every node, from memory or from paged rows; these are read
// for windows, or, of no batch, as they are gathered.
struct Loading {
  Loading(const Table& table, std::shared_ptr<PagedRows> rows, WindowLimits window)
      : ring(table.num_rows, 8), sampler(ring.sampler()) {
    auto plan = std::make_shared<GatherPlan>();
    plan->num_lists = 2;
    plan->columns.push_back({0, table.in_memory()});
    if (rows != nullptr) {
      plan->paged.push_back({0, std::move(rows)});
      if (window.max_batches > 0) plan->windows = std::make_shared<WindowRoom>(window);
      plan->columns.back().paged = 0;
    }
    recipe = recipe_of(sampler, plan);
  }

  Ring ring;
  NeighborSampler sampler;
  std::shared_ptr<Recipe> recipe;
};

Batch in_memory(const Table& table, std::uint64_t key) {
  return batch_of(*Loading(table, nullptr, {}).recipe, key);
}

}  // namespace

TEST(paged_rows_that_lie_once_more_are_the_same_rows) {
  const Scratch scratch;
  std::mt19937_64 random(7);
  const Table table(scratch / "rows", 501);  // a last group that is not whole
  for (int round = 0; round < 60; ++round) {
    const int bits = 2 * (round % 3);
    std::vector<std::int32_t> groups(501U >> bits);
    std::iota(groups.begin(), groups.end(), 0);
    std::shuffle(groups.begin(), groups.end(), random);
    groups.resize(random() % (groups.size() + 1));
    const Copy copy(scratch / "again", table, groups, bits);
    const auto resident = static_cast<std::int64_t>(random() % 200) >> bits;
    PagedRows paged =
        copy.paged(table, resident, static_cast<std::int64_t>(random() % 100) >> bits);
    CHECK(paged.num_rows() == 501 && paged.num_kept() >= resident);
    if (round % 2 == 0) load(paged);
    for (int window = 0; window < 5; ++window) {
      std::vector<std::vector<std::int64_t>> wanted(1 + random() % 4);
      std::vector<IdList> lists;
      for (std::vector<std::int64_t>& list : wanted) {
        list.resize(random() % 120);
        for (std::int64_t& row : list) row = static_cast<std::int64_t>(random() % 501);
        lists.emplace_back(list);
      }
      const std::int64_t room = window % 2 == 0 ? 1 << 20 : 50 * table.row_bytes();
      const RowWindow read = paged.read(lists, room);
      CHECK(window % 2 != 0 || read.num_lists() == lists.size());
      CHECK(read.num_lists() == 1 || read.bytes() <= room);
      for (std::size_t k = 0; k < read.num_lists(); ++k) {
        CHECK(read.errors[k] == nullptr && has_rows(paged, read, k, wanted[k]));
      }
    }
    const std::vector<std::int64_t> beyond{501};
    const IdList list(beyond);
    CHECK_THROWS(std::out_of_range, "expected 0 <= row < 501", paged.read({&list, 1}, 1 << 20));
  }
}

TEST(groups_that_lie_once_more_are_read_from_there_in_one_piece) {
  const Scratch scratch;
  const Table table(scratch / "rows", 501);
  std::vector<std::int32_t> groups{20, 7, 30, 0};
  const Copy copy(scratch / "again", table, groups, 4);
  PagedRows paged = copy.paged(table, 6, 0);  // the copy, and the file's first two groups
  ReadStats stats;
  CHECK(paged.load(0, 1 << 20, stats) == 6);
  CHECK(stats.rows == 96 && stats.reads == 2);
  CHECK(stats.useful_bytes == 96U * static_cast<unsigned>(table.row_bytes()));
  std::vector<std::int64_t> wanted;
  for (const std::int64_t group : {20, 7, 30, 0, 1}) {
    for (std::int64_t row = 16 * group; row < 16 * group + 16; ++row) wanted.push_back(row);
  }
  wanted.push_back(500);
  const IdList list(wanted);
  const RowWindow window = paged.read({&list, 1}, 0);
  CHECK(window.stats.hits == 80 && window.stats.reads == 1);
  CHECK(window.bytes() == table.row_bytes() && has_rows(paged, window, 0, wanted));
}

TEST(rows_of_windows_are_the_same_whether_few_or_many_are_wanted) {
  const Scratch scratch;
  std::mt19937_64 random(3);
  const std::int64_t num_rows = 20000;
  const Table table(scratch / "rows", num_rows);
  for (const std::size_t wanted : {1, 5, 300, 400, 5000, 50000}) {
    for (const std::int64_t resident : {std::int64_t{0}, num_rows / 3, num_rows}) {
      const auto paged = table.paged(ResidentRows(num_rows, 0, resident));
      std::vector<std::int64_t> first(wanted), second(wanted);
      for (auto* const rows : {&first, &second}) {
        for (std::int64_t& row : *rows) {
          row = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(num_rows));
        }
      }
      const std::vector<IdList> lists{IdList(first), IdList(second)};
      const RowWindow window = paged->read(lists, 1 << 30);
      CHECK(window.num_lists() == 2);
      std::set<std::int64_t> read;
      for (std::size_t k = 0; k < 2; ++k) {
        const auto& rows = k == 0 ? first : second;
        CHECK(has_rows(*paged, window, k, rows));
        for (const std::int64_t row : rows) {
          if (row >= resident) read.insert(row);
        }
      }
      // Each once, however often it is wanted.
      CHECK(window.bytes() == std::ssize(read) * table.row_bytes());
    }
  }
}

TEST(row_orders_have_every_place_in_few_bits) {
  std::mt19937_64 random(11);
  for (const std::int64_t rows : {0, 1, 63, 64, 65, 5000, 70001}) {
    for (const int bits : {0, 1, 4}) {
      for (const std::int64_t divisor : {1, 3, 100000}) {
        std::vector<std::int32_t> groups(static_cast<std::size_t>(rows >> bits));
        std::iota(groups.begin(), groups.end(), 0);
        std::shuffle(groups.begin(), groups.end(), random);
        groups.resize(groups.size() / static_cast<std::size_t>(divisor));
        std::vector<std::int64_t> all;  // those that lie once more, then the others
        std::vector<bool> is_copied(static_cast<std::size_t>(rows));
        for (const std::int64_t group : groups) {
          for (std::int64_t row = group << bits; row < (group + 1) << bits; ++row) {
            all.push_back(row);
            is_copied[static_cast<std::size_t>(row)] = true;
          }
        }
        const std::int64_t again = std::ssize(all);
        for (std::int64_t row = 0; row < rows; ++row) {
          if (!is_copied[static_cast<std::size_t>(row)]) all.push_back(row);
        }
        const RowOrder order(groups, rows, bits);
        CHECK(order.num_rows() == rows && order.num_again() == again);
        CHECK(order.num_places() == rows + again);
        std::vector<std::int64_t> places(all), ranks(all);
        order.find_places(places);
        order.find_ranks(ranks);
        for (std::int64_t i = 0; i < rows; ++i) {
          const auto at = static_cast<std::size_t>(i);
          const std::int64_t expected = i < again ? i : again + all[at];
          CHECK(places[at] == expected);
          CHECK(order.place_of(all[at]) == expected);
          CHECK(ranks[at] == i);
        }
      }
    }
  }
  CHECK(RowOrder::num_bytes(10'000'000, 5'200'000) < 18'000'000);
  CHECK(RowOrder::num_bytes(160'000'000, 5'200'000, 4) ==
        RowOrder::num_bytes(10'000'000, 5'200'000));
}

TEST(only_who_needs_a_row_that_lies_once_more_and_is_lost_fails) {
  const Scratch scratch;
  const Table table(scratch / "rows", 501);
  for (const int bits : {0, 2}) {
    std::vector<std::int32_t> first(100U >> bits);
    std::iota(first.begin(), first.end(), 0);
    const Copy copy(scratch / "again", table, first, bits);
    for (const auto& [resident, frames] : {std::pair{0, 0}, {100, 0}, {8, 40}}) {
      PagedRows paged = copy.paged(table, resident >> bits, frames >> bits);
      const std::vector<std::int64_t> beside{200, 500, 100}, lost{300, 99}, there{0, 49, 400};
      const std::vector<IdList> lists{IdList(beside), IdList(lost), IdList(there)};
      std::filesystem::resize_file(copy.table.path, 50 * table.row_bytes());
      {
        const RowWindow window = paged.read(lists, 1 << 20);
        CHECK(!window.errors[0] && window.errors[1] && !window.errors[2]);
        CHECK(has_rows(paged, window, 0, beside) && has_rows(paged, window, 2, there));
      }
      if (resident == 100) {
        ReadStats stats;
        CHECK_THROWS(OsError, "truncated", paged.load(0, 100, stats));
      }
      copy.table.write();
      const RowWindow window = paged.read(lists, 1 << 20);
      CHECK(!window.errors[1] && has_rows(paged, window, 1, lost));
      CHECK(has_rows(paged, window, 0, beside) && has_rows(paged, window, 2, there));
    }
  }
}

TEST(copies_that_are_not_of_their_order_are_refused) {
  const Scratch scratch;
  const Table table(scratch / "rows", 501);
  const Copy copy(scratch / "again", table, {3, 0}, 2);
  const Table fewer(scratch / "fewer", 7);
  const auto made = [&](ColumnFile again) {
    const auto reader = std::make_shared<DiskGather>(DiskGatherOptions{});
    PagedRows(ResidentRows(509, 2, 0), 0, table.file(), reader, {64, 4096},
              {copy.order, std::move(again)});
  };
  ColumnFile narrow = copy.table.file();
  narrow.layout.row_bytes = 8;
  CHECK_THROWS(std::invalid_argument, "found 7 rows of 24 bytes, expected 8 of 24",
               made(fewer.file()));
  CHECK_THROWS(std::invalid_argument, "found 8 rows of 8 bytes, expected 8 of 24", made(narrow));
}

TEST(orders_of_what_are_no_rows_are_refused) {
  for (const std::int32_t row : {-1, 3, 2}) {
    const std::vector<std::int32_t> again{2, row};
    const std::string found = "again[1]: found " + std::to_string(row);
    CHECK_THROWS(std::invalid_argument,
                 found + (row == 2 ? " once more" : "") + ", expected rows below 3, each once",
                 RowOrder(again, 3));
    // Rows 12 and 13 are no whole group.
    CHECK_THROWS(
        std::invalid_argument,
        found + (row == 2 ? " once more" : "") + ", expected whole groups below 3, each once",
        RowOrder(again, 14, 2));
  }
  CHECK_THROWS(std::invalid_argument, "group_bits: expected 0 to 20", RowOrder({}, 3, 21));
  CHECK_THROWS(std::invalid_argument, "num_rows: 0 or more", RowOrder({}, -1));
}

TEST(resident_rows_are_found_where_they_are) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 50; ++round) {
    const auto n = static_cast<std::int64_t>(1 + random() % 500);
    const ResidentRows rows = random_rows(random, n);
    std::vector<bool> taken(static_cast<std::size_t>(rows.num_places()));
    std::int64_t last = -1, kept = 0;
    for (std::int64_t r = 0; r < n; ++r) {
      const std::int64_t place = rows.find(r);
      if (place < 0) continue;
      CHECK(place > last && place < rows.num_places());  // in the order of rows
      last = place;
      ++kept;
    }
    CHECK(kept <= rows.num_places());
    CHECK(kept > rows.num_places() - (1 << rows.group_bits()) || rows.num_places() == 0);
  }
}

TEST(batches_that_read_are_those_in_memory) {
  const Scratch scratch;
  std::mt19937_64 random(2);
  const Table table(scratch / "rows", 700);
  std::vector<std::int32_t> again(300);
  for (std::size_t i = 0; i < again.size(); ++i) again[i] = static_cast<std::int32_t>(699 - 2 * i);
  const Copy copy(scratch / "again", table, again, 0);
  for (int round = 0; round < 24; ++round) {
    const WindowLimits window{static_cast<int>(round % 2 == 0 ? 0 : 1 + random() % 6),
                              static_cast<std::int64_t>(random() % 4000)};
    const auto frames = static_cast<std::int64_t>(round % 3 == 0 ? 0 : random() % 300);
    std::shared_ptr<PagedRows> rows;
    if (round % 4 < 2) {
      rows = table.paged(random_rows(random, table.num_rows), true, frames);
    } else {
      rows.reset(new PagedRows(copy.paged(table, 50, frames)));  // which does not move
    }
    const Loading loading(table, std::move(rows), window);
    const int threads = static_cast<int>(1 + random() % 3);
    Batches epoch(threads, static_cast<std::int64_t>(random() % 20000));
    const std::uint64_t ahead = 1 + random() % 9;
    std::uint64_t asked = 0;
    ReadStats stats;
    for (std::uint64_t key = 0; key < 25; ++key) {
      for (; asked < 25 && asked < key + ahead; ++asked) {
        epoch.add(loading.recipe, batch_request(asked));
      }
      if (asked == 25) epoch.flush();
      const auto batch = epoch.get(60s);
      CHECK(batch != nullptr && same(*batch, in_memory(table, key)));
      stats += batch->read;
    }
    CHECK(stats.hits <= stats.rows && stats.useful_bytes <= stats.bytes);
    CHECK(stats.rows > 0);
  }
}

TEST(a_consumer_that_waits_gets_a_short_window) {
  const Scratch scratch;
  const Table table(scratch / "rows", 300);
  const Loading loading(table, table.paged(ResidentRows(300, 0, 10)), {50, 1 << 30});
  Batches epoch(1, 1 << 30);
  epoch.add(loading.recipe, batch_request(1));
  CHECK(epoch.get(60s) != nullptr);  // though 49 others might follow
}

TEST(a_flushed_window_does_not_wait_for_its_consumer) {
  const Scratch scratch;
  const Table table(scratch / "rows", 300);
  const Loading loading(table, table.paged(ResidentRows(300, 0, 10)), {50, 1 << 30});
  Batches epoch(2, 1 << 30);
  epoch.add(loading.recipe, batch_request(9));
  CHECK(epoch.get(60s) != nullptr);  // the first window is of one batch
  for (std::uint64_t key = 0; key < 3; ++key) epoch.add(loading.recipe, batch_request(key));
  epoch.flush();
  for (int i = 0; i < 6000 && !epoch.is_ready(); ++i) std::this_thread::sleep_for(10ms);
  CHECK(epoch.is_ready());
  // All three were read for at once.
  CHECK(epoch.get(60s)->read.rows > epoch.get(60s)->read.rows);
}

TEST(only_batches_that_need_what_is_lost_fail) {
  const Scratch scratch;
  const Table table(scratch / "rows", 2000);
  const Loading loading(table, table.paged(ResidentRows(2000, 0, 5), false), {4, 1 << 30});
  const auto around = [](std::int64_t node) { return BatchRequest{{{0, {node}, {}}}, 7}; };
  Batches epoch(2, 1 << 30);
  std::filesystem::resize_file(table.path, static_cast<std::uintmax_t>(1000 * table.row_bytes()));
  for (const std::int64_t node : {100, 1500, 200, 1600}) {
    epoch.add(loading.recipe, around(node));
  }
  epoch.flush();
  CHECK(epoch.get(60s)->num_nodes() > 1);
  CHECK_THROWS(OsError, "rows", epoch.get(60s));
  CHECK(epoch.get(60s)->num_nodes() > 1);
  CHECK_THROWS(OsError, "truncated", epoch.get(60s));
}

TEST(room_for_windows_is_shared_and_never_more_than_there_is) {
  const auto room = std::make_shared<WindowRoom>(WindowLimits{8, 1000});
  Loan first = room->take();
  CHECK(first.bytes() == 1000 && room->max_batches() == 8);
  CHECK(room->take().bytes() == 0);  // nothing is left, and take() does not wait
  CHECK(!room->has_half());
  room->divide_among(2);
  CHECK(room->max_batches() == 4);
  first.shrink(300);
  Loan second = room->take();
  CHECK(second.bytes() == 500);
  CHECK(room->take().bytes() == 200);
  first = Loan();
  CHECK(room->take().bytes() == 500);
  room->divide_among(100);
  CHECK(room->max_batches() == 1);
  room->divide_among(1);
  CHECK(room->max_batches(2) == 4 && room->has_half());
  CHECK(room->take(2).bytes() == 500);
  second.shrink(499);
  CHECK(room->has_half() && room->take(2).bytes() == 500);
  room->divide_among(0);
  second.shrink(2000);  // never more than it had
  CHECK(second.bytes() == 499 && room->take().bytes() == 501);
}

TEST(batches_whose_windows_were_given_up_are_the_same) {
  const Scratch scratch;
  const Table table(scratch / "rows", 400);
  const Loading loading(table, table.paged(ResidentRows(400, 0, 10)), {5, 1 << 30});
  Batches epoch(2, 1 << 30);
  for (std::uint64_t key = 0; key < 40; ++key) epoch.add(loading.recipe, batch_request(key));
  epoch.flush();
  std::int64_t rows = 0, wanted = 0;
  for (std::uint64_t key = 0; key < 40; ++key) {
    if (key % 3 == 0) epoch.give_up_windows();
    const auto batch = epoch.get(std::chrono::seconds(20));
    CHECK(batch != nullptr && same(*batch, in_memory(table, key)));
    rows += batch->read.rows;
    wanted += batch->nodes[0].size();
  }
  CHECK(rows >= wanted);  // what was read twice is counted twice
}

TEST(a_slow_consumer_has_one_window_read_while_it_works_on_another) {
  const Scratch scratch;
  const Table table(scratch / "rows", 400);
  for (const bool is_slow : {false, true}) {
    const Loading loading(table, table.paged(ResidentRows(400, 0, 10)), {8, 1 << 20});
    Batches epoch(2, 1);  // or all would be gathered at once
    for (std::uint64_t key = 0; key < 64; ++key) epoch.add(loading.recipe, batch_request(key));
    epoch.flush();
    std::vector<int> begins;  // of windows
    for (int key = 0; key < 64; ++key) {
      const auto batch = epoch.get(60s);
      CHECK(batch != nullptr && same(*batch, in_memory(table, static_cast<std::uint64_t>(key))));
      if (batch->read.rows > 0) begins.push_back(key);
      // Slower than the disk, however slow that is.
      const std::chrono::duration<double> least = 10ms, twice(2 * batch->read.seconds);
      if (is_slow) std::this_thread::sleep_for(std::max(least, twice));
    }
    if (!is_slow) continue;  // how long it takes to compare is anybody's guess
    for (std::size_t w = begins.size() / 2; w + 1 < begins.size(); ++w) {
      CHECK(begins[w + 1] - begins[w] <= 4);
    }
    CHECK(begins.size() >= 12);
  }
}

TEST(closing_a_pipeline_that_reads_does_not_hang) {
  const Scratch scratch;
  const Table table(scratch / "rows", 5000);
  for (int round = 0; round < 20; ++round) {
    const Loading loading(table, table.paged(ResidentRows(5000, 0, 5)),
                          {round % 4 < 2 ? 3 : 0, 1 << 30});
    Batches epoch(2, 1 << 30);
    for (std::uint64_t key = 0; key < 20; ++key) epoch.add(loading.recipe, batch_request(key));
    if (round % 2 == 0) epoch.get(60s);
    std::this_thread::sleep_for(std::chrono::microseconds(50 * round));
    epoch.close();
    CHECK_THROWS(std::logic_error, "closed", epoch.get(1s));
  }
}

TEST(resident_rows_can_be_read_ahead) {
  const Scratch scratch;
  const Table table(scratch / "rows", 400);
  const auto rows = table.paged(ResidentRows(400, 2, 50));
  load(*rows);
  const std::vector<std::int64_t> wanted{0, 7, 199, 200, 399};
  const IdList lists[] = {std::span<const std::int64_t>(wanted)};
  const RowWindow window = rows->read(lists, 0);
  CHECK(window.stats.rows == 5 && window.stats.hits == 3);
  CHECK(window.stats.useful_bytes == 2U * static_cast<unsigned>(table.row_bytes()));
}

// Windows that are held while others are read: what any of them found stays where it is.
TEST(rows_in_frames_stay_as_long_as_a_window_uses_them) {
  const Scratch scratch;
  std::mt19937_64 random(5);
  const Table table(scratch / "rows", 900);
  for (const int bits : {0, 2}) {
    for (const std::int64_t frames : {1, 20, 100, 900}) {
      const auto rows = table.paged(ResidentRows(900, bits, 3), true, frames);
      struct Held {
        std::vector<std::vector<std::int64_t>> wanted;
        RowWindow window;
      };
      std::vector<Held> held;
      for (int round = 0; round < 200; ++round) {
        Held one{std::vector<std::vector<std::int64_t>>(1 + random() % 3), {}};
        std::vector<IdList> lists;
        for (std::vector<std::int64_t>& list : one.wanted) {
          for (std::uint64_t i = 1 + random() % 20; i > 0; --i) {
            const std::uint64_t among = random() % 3 == 0 ? 900 : 40;  // some are used often
            list.push_back(static_cast<std::int64_t>(random() % among));
          }
          lists.emplace_back(list);
        }
        one.window = rows->read(lists, random() % 2 == 0 ? 1 << 20 : 4 * table.row_bytes());
        one.window.shorten(1 + random() % one.window.num_lists());
        one.wanted.resize(one.window.num_lists());
        std::int64_t asked = 0;
        for (const std::vector<std::int64_t>& list : one.wanted) asked += std::ssize(list);
        CHECK(one.window.stats.rows == asked);
        held.push_back(std::move(one));
        for (const Held& each : held) {
          for (std::size_t k = 0; k < each.wanted.size(); ++k) {
            CHECK(has_rows(*rows, each.window, k, each.wanted[k]));
          }
        }
        while (held.size() > random() % 4) {
          held.erase(held.begin() + static_cast<std::ptrdiff_t>(random() % held.size()));
        }
      }
    }
  }
}

TEST(rows_that_are_used_again_are_kept_rather_than_others) {
  const Scratch scratch;
  const Table table(scratch / "rows", 5000);
  const auto rows = table.paged(ResidentRows(5000, 0, 0), true, 600);
  std::vector<std::int64_t> all(5000);
  std::iota(all.begin(), all.end(), 0);
  std::mt19937_64 random(1);
  std::shuffle(all.begin(), all.end(), random);
  // Every other window wants the same 240; each but one wants some that none had lately.
  const std::vector<std::int64_t> often(all.begin(), all.begin() + 240);
  auto next = all.begin() + 240;
  for (int window = 0; window < 60; ++window) {
    const std::ptrdiff_t others = window == 0 ? 300 : window == 1 ? 0 : 70;
    if (all.end() - next < others) next = all.begin() + 240;
    std::vector<std::int64_t> wanted(next, next + others);
    next += others;
    if (window % 2 == 1) wanted.insert(wanted.end(), often.begin(), often.end());
    const IdList lists[] = {std::span<const std::int64_t>(wanted)};
    const ReadStats stats = rows->read(lists, 1 << 20).stats;
    CHECK(stats.hits == (window % 2 == 1 && window > 1 ? 240 : 0));
  }
}

TEST(a_window_that_is_cut_short_takes_no_frames_for_what_it_leaves) {
  const Scratch scratch;
  const Table table(scratch / "rows", 5000);
  const auto rows = table.paged(ResidentRows(5000, 0, 0), true, 100);
  std::vector<std::int64_t> wanted(160);
  std::iota(wanted.begin(), wanted.end(), 1000);
  std::vector<IdList> lists;
  for (std::size_t k = 0; k < 4; ++k) lists.emplace_back(std::span(wanted).subspan(40 * k, 40));
  // A window may have half of the frames, and room for 5 rows: the second list is too much.
  const RowWindow first = rows->read(lists, 5 * table.row_bytes());
  CHECK(first.num_lists() == 1 && first.stats.rows == 40 && first.stats.hits == 0);
  CHECK(first.stats.useful_bytes == 40 * table.row_bytes() && first.bytes() == 0);
  // While it lives the next one has its share, too.
  const RowWindow second = rows->read(std::span(lists).subspan(1), 5 * table.row_bytes());
  CHECK(second.num_lists() == 1 && second.stats.useful_bytes == 40 * table.row_bytes());
  RowWindow both = rows->read(std::span(lists).first(2), 0);
  CHECK(both.num_lists() == 2 && both.stats.rows == 80 && both.stats.hits == 80);
  both.shorten(1);
  CHECK(both.num_lists() == 1 && both.stats.rows == 40 && both.stats.hits == 40);
}

TEST(paged_rows_refuse_what_is_not_there) {
  const Scratch scratch;
  const Table table(scratch / "rows", 40);
  const auto rows = table.paged(ResidentRows(40, 0, 4));
  for (const std::int64_t bad : {-1, 40}) {
    const std::vector<std::int64_t> wanted{3, bad};
    const IdList lists[] = {std::span<const std::int64_t>(wanted)};
    CHECK_THROWS(std::out_of_range, "expected 0 <= row < 40", rows->read(lists, 0));
  }
  CHECK_THROWS(std::invalid_argument, "found 40 rows of 24 bytes, expected 41 of 24",
               table.paged(ResidentRows(41, 0, 4)));
}
