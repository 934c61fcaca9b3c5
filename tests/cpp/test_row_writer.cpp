// storage/row_writer and base/range_bits: rows in any order, from any thread.
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
#include "storage/row_writer.h"

using namespace gz;
using namespace gz::test;

namespace {

RowWriter writer_of(const Scratch& dir, std::uint64_t rows, std::uint64_t items) {
  const std::vector<std::uint64_t> shape{rows, items};
  return {dir / "x.gd", *find_dtype("int32"), shape, std::nullopt};
}

std::vector<std::int32_t> some_rows(std::uint64_t count, std::uint64_t items, std::int32_t seed) {
  std::vector<std::int32_t> rows(count * items);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = static_cast<std::int32_t>(i * 2654435761U) ^ seed;
  }
  return rows;
}

void write(RowWriter& writer, std::uint64_t first, const std::vector<std::int32_t>& rows) {
  writer.write(first, rows.data(), rows.size() * sizeof(std::int32_t));
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
      const std::uint64_t c = random() % (size + 1);
      const auto place = [&](auto found) {
        return static_cast<std::uint64_t>(found - expected.begin());
      };
      CHECK(bits.first_set(c) == place(std::find(from(c), expected.end(), true)));
      CHECK(bits.first_clear(c) == place(std::find(from(c), expected.end(), false)));
    }
  }
}

// 1 MiB blocks: of whole rows, of rows that straddle them, and of rows with padding.
TEST(rows_written_in_any_order) {
  std::mt19937 random(2);
  for (const std::uint64_t items : {1024, 1025, 1000}) {
    for (int round = 0; round < 6; ++round) {
      const Scratch dir;
      constexpr std::uint64_t kRows = 700;  // some 3 blocks
      std::vector<std::int32_t> expected(kRows * items);
      std::vector<bool> is_written(kRows);
      RowWriter writer = writer_of(dir, kRows, items);
      const auto put = [&](std::uint64_t first, const std::vector<std::int32_t>& rows) {
        write(writer, first, rows);
        std::copy(rows.begin(), rows.end(),
                  expected.begin() + static_cast<std::ptrdiff_t>(first * items));
        std::fill_n(is_written.begin() + static_cast<std::ptrdiff_t>(first), rows.size() / items,
                    true);
      };
      for (int step = 0; step < 15; ++step) {
        const std::uint64_t first = random() % kRows, count = 1 + random() % (kRows - first);
        put(first, some_rows(step % 3 == 0 ? 1 : count, items, step));
      }
      while (true) {
        const auto [begin, end] = writer.first_missing();
        const auto missing = std::find(is_written.begin(), is_written.end(), false);
        CHECK(static_cast<std::ptrdiff_t>(begin) == missing - is_written.begin());
        if (begin == kRows) break;
        const auto next = std::find(missing, is_written.end(), true);
        CHECK(static_cast<std::ptrdiff_t>(end) == next - is_written.begin());
        put(begin, some_rows(end - begin, items, 77));
      }
      writer.finish();
      CHECK(is_right(dir / "x.gd", expected));
      put(3, some_rows(5, items, 78));  // what follows finish() is in the next one
      writer.finish();
      CHECK(is_right(dir / "x.gd", expected));
    }
  }
}

TEST(a_row_writer_makes_what_a_column_writer_makes) {
  const Scratch dir;
  const auto rows = some_rows(1000, 999, 5);
  RowWriter in_any_order = writer_of(dir, 1000, 999);
  write(in_any_order, 0, rows);
  in_any_order.finish();
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

TEST(rows_are_no_column_before_they_are_finished) {
  const Scratch dir;
  const auto rows = some_rows(600, 1024, 1);
  RowWriter writer = writer_of(dir, 600, 1024);
  write(writer, 0, {rows.begin(), rows.begin() + 100 * 1024});
  write(writer, 400, {rows.begin() + 400 * 1024, rows.end()});
  CHECK_THROWS(std::invalid_argument, "found nothing in rows 100 to 400", writer.finish());
  write(writer, 100, {rows.begin() + 100 * 1024, rows.begin() + 400 * 1024});
  CHECK_THROWS(FormatError, "x.gd", Column::open(dir / "x.gd"));
  writer.finish();
  CHECK(is_right(dir / "x.gd", rows));
}

TEST(rows_written_by_threads) {
  for (const std::uint64_t items : {512, 1000}) {  // the latter lie apart
    const Scratch dir;
    constexpr std::uint64_t kRows = 2400, kThreads = 4, kPiece = 50;
    const auto rows = some_rows(kRows, items, 3);
    RowWriter writer = writer_of(dir, kRows, items);
    {
      std::vector<std::jthread> threads;
      for (std::uint64_t t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
          for (std::uint64_t at = t * kPiece; at < kRows; at += kThreads * kPiece) {
            writer.write(at, rows.data() + at * items, kPiece * items * 4);
            CHECK(writer.first_missing().first <= kRows);
          }
        });
      }
    }
    writer.finish();
    CHECK(is_right(dir / "x.gd", rows));
  }
}

TEST(rows_written_by_place) {
  const Scratch dir;
  constexpr std::uint64_t kItems = 3000;
  const auto rows = some_rows(500, kItems, 4);
  std::vector<std::int64_t> places(500);
  for (std::size_t i = 0; i < 500; ++i) places[i] = static_cast<std::int64_t>((i * 7) % 500);
  std::vector<std::int32_t> expected(rows.size());
  for (std::size_t i = 0; i < 500; ++i) {
    std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(i * kItems), kItems,
                expected.begin() + static_cast<std::ptrdiff_t>(places[i]) * kItems);
  }
  RowWriter writer = writer_of(dir, 500, kItems);
  const std::vector<std::int64_t> twice{8, 0, 8}, beyond{0, 500}, negative{-1};
  writer.put(places, rows.data(), rows.size() * 4);
  writer.put(twice, rows.data(), 3 * kItems * 4);
  std::copy_n(rows.begin() + kItems, kItems, expected.begin());
  std::copy_n(rows.begin() + 2 * kItems, kItems, expected.begin() + 8 * kItems);
  CHECK_THROWS(std::out_of_range, "index[1]: found row 500, expected 0 <= row < 500",
               writer.put(beyond, rows.data(), 2 * kItems * 4));
  CHECK_THROWS(std::out_of_range, "index[0]: found row -1",
               writer.put(negative, rows.data(), 12'000));
  CHECK_THROWS(std::invalid_argument, "found 2 rows, expected 3",
               writer.put(twice, rows.data(), 2 * kItems * 4));
  writer.finish();
  CHECK(is_right(dir / "x.gd", expected));
}

TEST(a_row_writer_refuses) {
  const Scratch dir;
  const auto rows = some_rows(10, 4, 0);
  RowWriter writer = writer_of(dir, 10, 4);
  CHECK_THROWS(OsError, "x.gd", writer_of(dir, 10, 4));
  CHECK_THROWS(std::out_of_range, "found rows 5 to 15, expected 0 <= row < 10",
               write(writer, 5, rows));
  CHECK_THROWS(std::out_of_range, "expected 0 <= row < 10", write(writer, 11, {}));
  CHECK_THROWS(std::invalid_argument, "multiple of the row size 16",
               writer.write(0, rows.data(), 17));
  const std::vector<std::uint64_t> none;
  CHECK_THROWS(std::invalid_argument, "expected rows",
               RowWriter(dir / "y.gd", *find_dtype("int32"), none, std::nullopt));
}
