// storage/row_writer: rows in any order, from any thread.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
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
  return {dir / "x.gd", dtype_named("int32"), shape, std::nullopt};
}

std::vector<std::int32_t> some_rows(std::uint64_t count, std::uint64_t items, std::int32_t seed) {
  std::vector<std::int32_t> rows(count * items);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = static_cast<std::int32_t>(i * 2654435761U) ^ seed;
  }
  return rows;
}

void write(RowWriter& writer, std::uint64_t first, const std::vector<std::int32_t>& rows) {
  writer.write(first, std::as_bytes(std::span(rows)));
}

bool is_right(const std::string& path, const std::vector<std::int32_t>& expected) {
  std::vector<BadBlock> bad;
  const std::uint64_t blocks = count_blocks(path, &bad);
  if (!bad.empty() || !verify_blocks(path, 0, blocks).empty()) return false;
  const auto column = Column::open(path);
  std::vector<unsigned char> row(column->row_bytes());
  for (std::uint64_t r = 0; r < column->num_rows(); ++r) {
    column->file()->read_at(row.data(), row.size(), kHeaderBytes + r * column->row_stride());
    const auto* const wanted = reinterpret_cast<const unsigned char*>(expected.data());
    if (std::memcmp(row.data(), wanted + r * row.size(), row.size()) != 0) return false;
  }
  return true;
}

}  // namespace

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
            writer.write(at, std::as_bytes(std::span(rows).subspan(at * items, kPiece * items)));
            CHECK(writer.first_missing().first <= kRows);
          }
        });
      }
    }
    writer.finish();
    CHECK(is_right(dir / "x.gd", rows));
  }
}
