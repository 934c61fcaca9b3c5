// storage/column_draft and base/range_bits: rows in any order, over several runs, from any thread.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/range_bits.h"
#include "check.h"
#include "scratch.h"
#include "storage/block_writer.h"
#include "storage/column.h"
#include "storage/column_draft.h"

using namespace gz;
using namespace gz::test;

namespace {

DraftLayout layout_of(const Scratch& dir, std::uint64_t rows, std::uint64_t items) {
  const std::vector<std::uint64_t> shape{rows, items};
  return {dir / "x.gd", dir / "x.rows", *find_dtype("int32"), shape, std::nullopt};
}

std::vector<std::int32_t> some_rows(std::uint64_t count, std::uint64_t items, std::int32_t seed) {
  std::vector<std::int32_t> rows(count * items);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = static_cast<std::int32_t>(i * 2654435761U) ^ seed;
  }
  return rows;
}

void write(ColumnDraft& draft, std::uint64_t first, const std::vector<std::int32_t>& rows) {
  draft.write(first, rows.data(), rows.size() * sizeof(std::int32_t));
}

bool is_right(const std::string& path, const std::vector<std::int32_t>& expected) {
  std::vector<BadBlock> bad;
  const std::uint64_t blocks = count_blocks(path, &bad);
  if (!bad.empty() || !verify_blocks(path, 0, blocks, 1).empty()) return false;
  const auto column = Column::open(path);
  std::vector<unsigned char> row(column->row_bytes());
  for (std::uint64_t r = 0; r < column->num_rows(); ++r) {
    column->file().read_at(row.data(), row.size(), kHeaderBytes + r * column->row_stride());
    const auto* const wanted = reinterpret_cast<const unsigned char*>(expected.data());
    if (std::memcmp(row.data(), wanted + r * row.size(), row.size()) != 0) return false;
  }
  return true;
}

}  // namespace

TEST(range_bits_as_a_vector_of_bools) {
  std::mt19937 random(1);
  for (const std::uint64_t size : {0, 1, 63, 64, 65, 200}) {
    RangeBits bits(size);
    std::vector<bool> expected(size);
    for (int step = 0; step < 200; ++step) {
      const std::uint64_t a = random() % (size + 1), b = random() % (size + 1);
      const std::uint64_t begin = std::min(a, b), end = std::max(a, b);
      const bool value = random() % 2 == 0;
      value ? bits.set(begin, end) : bits.clear(begin, end);
      const auto from = [&](std::uint64_t at) {
        return expected.begin() + static_cast<std::ptrdiff_t>(at);
      };
      std::fill(from(begin), from(end), value);
      const std::uint64_t c = random() % (size + 1), d = c + random() % (size + 1 - c);
      CHECK(bits.any(c, d) == (std::find(from(c), from(d), true) != from(d)));
      CHECK(bits.all(c, d) == (std::find(from(c), from(d), false) == from(d)));
      const auto place = [&](auto found) {
        return static_cast<std::uint64_t>(found - expected.begin());
      };
      CHECK(bits.first_set(c) == place(std::find(from(c), expected.end(), true)));
      CHECK(bits.first_clear(c) == place(std::find(from(c), expected.end(), false)));
    }
    for (std::uint64_t& word : bits.words()) word = ~std::uint64_t{0};
    bits.trim();
    CHECK(bits.all(0, size) && bits.first_clear(0) == size);
  }
}

// 1 MiB blocks: of whole rows, of rows that straddle them, and of rows with padding.
TEST(a_draft_written_in_any_order) {
  std::mt19937 random(2);
  for (const std::uint64_t items : {1024, 1025, 1000}) {
    for (int round = 0; round < 6; ++round) {
      const Scratch dir;
      constexpr std::uint64_t kRows = 700;  // some 3 blocks
      const DraftLayout layout = layout_of(dir, kRows, items);
      std::vector<std::int32_t> expected(kRows * items);
      auto draft = ColumnDraft::create(layout);
      for (int step = 0; step < 15; ++step) {
        const std::uint64_t first = random() % kRows, count = 1 + random() % (kRows - first);
        const auto rows = some_rows(count, items, step);
        write(*draft, first, rows);
        std::copy(rows.begin(), rows.end(),
                  expected.begin() + static_cast<std::ptrdiff_t>(first * items));
        if (random() % 3 == 0) draft->commit();
        if (random() % 5 == 0) {
          draft->commit();
          draft = ColumnDraft::resume(layout);
        }
      }
      while (true) {
        const auto [begin, end] = draft->first_missing();
        if (begin == kRows) break;
        CHECK(draft->is_written(0, begin) && !draft->is_written(begin, end));
        write(*draft, begin, std::vector<std::int32_t>((end - begin) * items));
      }
      draft->finish();
      CHECK(draft->durable_front() == kRows);
      CHECK(is_right(layout.path, expected));
    }
  }
}

TEST(a_draft_has_what_a_column_writer_writes) {
  const Scratch dir;
  const auto rows = some_rows(1000, 999, 5);
  const auto draft = ColumnDraft::create(layout_of(dir, 1000, 999));
  write(*draft, 0, rows);
  draft->finish();
  ColumnWriter writer(dir / "y.gd", *find_dtype("int32"), {1000, 999});
  writer.append(rows.data(), rows.size() * 4);
  writer.finish();
  const auto contents = [](const std::string& path) {
    std::string bytes(std::filesystem::file_size(path), '\0');
    File::open(path).read_at(bytes.data(), bytes.size(), 0);
    return bytes;
  };
  CHECK(contents(dir / "x.gd") == contents(dir / "y.gd"));
}

TEST(a_draft_forgets_what_was_not_committed) {
  const Scratch dir;
  const DraftLayout layout = layout_of(dir, 600, 1024);
  const auto rows = some_rows(600, 1024, 1), other = some_rows(300, 1024, 2);
  {
    const auto draft = ColumnDraft::create(layout);
    write(*draft, 0, rows);
    draft->commit();
    CHECK(draft->durable_front() == 600);
    write(*draft, 100, other);  // over rows that were durable
    CHECK(draft->durable_front() == 100);
    CHECK(draft->is_written(0, 600));
  }
  const auto draft = ColumnDraft::resume(layout);
  CHECK(draft->durable_front() == 100);
  CHECK((draft->first_missing() == std::pair<std::uint64_t, std::uint64_t>(100, 400)));
  CHECK_THROWS(std::invalid_argument, "found nothing in rows 100 to 400", draft->finish());
  write(*draft, 100, {rows.begin() + 100 * 1024, rows.begin() + 400 * 1024});
  draft->finish();
  CHECK(is_right(layout.path, rows));
}

TEST(a_draft_written_by_threads) {
  const Scratch dir;
  constexpr std::uint64_t kRows = 2400, kItems = 600, kThreads = 4, kPiece = 50;
  const DraftLayout layout = layout_of(dir, kRows, kItems);
  const auto rows = some_rows(kRows, kItems, 3);
  const auto draft = ColumnDraft::create(layout);
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (std::uint64_t at = t * kPiece; at < kRows; at += kThreads * kPiece) {
          draft->write(at, rows.data() + at * kItems, kPiece * kItems * 4);
          if (at % 400 == 0) draft->commit();
          CHECK(draft->durable_front() <= kRows);
        }
      });
    }
  }
  draft->finish();
  CHECK(is_right(layout.path, rows));
}

TEST(a_draft_takes_rows_by_place) {
  const Scratch dir;
  constexpr std::uint64_t kItems = 3000;
  const DraftLayout layout = layout_of(dir, 500, kItems);
  const auto rows = some_rows(500, kItems, 4);
  std::vector<std::int64_t> places(500);
  for (std::size_t i = 0; i < 500; ++i) places[i] = static_cast<std::int64_t>((i * 7) % 500);
  std::vector<std::int32_t> expected(rows.size());
  for (std::size_t i = 0; i < 500; ++i) {
    std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(i * kItems), kItems,
                expected.begin() + static_cast<std::ptrdiff_t>(places[i]) * kItems);
  }
  const auto draft = ColumnDraft::create(layout);
  const std::vector<std::int64_t> twice{8, 3, 8}, beyond{0, 500}, negative{-1};
  draft->put(twice, rows.data(), 3 * kItems * 4);
  CHECK(draft->is_written(3, 4) && draft->is_written(8, 9) && !draft->is_written(3, 9));
  draft->put(places, rows.data(), rows.size() * 4);
  CHECK_THROWS(std::out_of_range, "index[1]: found 500, expected 0 <= row < 500",
               draft->put(beyond, rows.data(), 2 * kItems * 4));
  CHECK_THROWS(std::out_of_range, "index[0]: found -1", draft->put(negative, rows.data(), 12'000));
  CHECK_THROWS(std::invalid_argument, "found 2 rows, expected 3",
               draft->put(twice, rows.data(), 2 * kItems * 4));
  draft->finish();
  CHECK(is_right(layout.path, expected));
}

TEST(a_draft_refuses) {
  const Scratch dir;
  const DraftLayout layout = layout_of(dir, 10, 4);
  const auto rows = some_rows(10, 4, 0);
  const auto draft = ColumnDraft::create(layout);
  CHECK_THROWS(OsError, "x.gd", ColumnDraft::create(layout));
  CHECK_THROWS(std::out_of_range, "found rows 5 to 15, expected 0 <= row < 10",
               write(*draft, 5, rows));
  CHECK_THROWS(std::out_of_range, "expected 0 <= row < 10", write(*draft, 11, {}));
  CHECK_THROWS(std::invalid_argument, "multiple of the row size 16",
               draft->write(0, rows.data(), 17));
  const std::vector<std::uint64_t> none;
  CHECK_THROWS(std::invalid_argument, "expected rows",
               DraftLayout(dir / "y.gd", dir / "y", *find_dtype("int32"), none, std::nullopt));
  CHECK_THROWS(FormatError, "file size", ColumnDraft::resume(layout_of(dir, 10, 4096)));
  CHECK_THROWS(FormatError, "file size", ColumnDraft::resume(layout_of(dir, 100, 4)));
}
