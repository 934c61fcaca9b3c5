#include "ids/accesses.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "arrays/buffer.h"
#include "base/errors.h"

namespace gz {
namespace {

constexpr std::size_t kAhead = 16;

template <class Item, class Row>
Item& at(std::span<Item> items, Row row) {
  return items[static_cast<std::size_t>(row)];
}

template <class Item, class Row>
void prefetch(std::span<Item> items, std::span<Row> rows, std::size_t i) {
  if (i + kAhead < rows.size()) __builtin_prefetch(&at(items, rows[i + kAhead]));
}

}  // namespace

void count_rows(std::span<const std::int64_t> rows, Counts counts) {
  check_range("rows", "row", rows, std::ssize(counts));
  // All are read before any is written: a row that occurs twice gets the same count twice.
  Buffer<std::int16_t> counted(std::ssize(rows));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    prefetch(counts, rows, i);
    const std::int16_t count = at(counts, rows[i]);
    const bool is_most = count == std::numeric_limits<std::int16_t>::max();
    counted[static_cast<std::int64_t>(i)] = static_cast<std::int16_t>(count + (is_most ? 0 : 1));
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    prefetch(counts, rows, i);
    at(counts, rows[i]) = counted[static_cast<std::int64_t>(i)];
  }
}

std::int64_t add_rows(std::span<const std::int64_t> rows, std::span<std::byte> bits, RowList list,
                      std::int64_t met) {
  check_range("rows", "row", rows, std::ssize(list));
  const auto refuse = [](const char* what) { throw invalid(what); };
  if (bits.size() < (list.size() + 7) / 8) refuse("bits: expected one for each row");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i + kAhead < rows.size()) __builtin_prefetch(&at(bits, rows[i + kAhead] >> 3), 1);
    std::byte& byte = at(bits, rows[i] >> 3);
    const std::byte bit = std::byte{1} << (rows[i] & 7);
    if ((byte & bit) != std::byte{0}) continue;
    if (met < 0 || met >= std::ssize(list)) refuse("bits: expected those of the list's rows");
    byte |= bit;
    at(list, met++) = static_cast<std::int32_t>(rows[i]);
  }
  return met;
}

void hottest_first(std::span<const std::int16_t> counts, RowList list, std::int32_t hot) {
  check_range("rows", "row", list, std::ssize(counts));
  // How far a row's count is above `hot`; how many rows are of each level, then where they end
  // among the hot ones, of which the highest level is first.
  const auto level = [&](std::int32_t row) {
    return static_cast<std::size_t>(std::max(0, at(counts, row) - hot));
  };
  std::vector<std::int64_t> end(1);
  for (std::size_t i = 0; i < list.size(); ++i) {
    prefetch(counts, list, i);
    if (end.size() <= level(list[i])) end.resize(level(list[i]) + 1);
    ++end[level(list[i])];
  }
  end[0] = 0;
  std::int64_t num_hot = 0;
  for (std::size_t i = end.size(); i-- > 1;) num_hot = end[i] += num_hot;
  // From behind, so that what is written is never ahead of what is read.
  Buffer<std::int32_t> hottest(num_hot);
  std::size_t rest = list.size();
  for (std::size_t i = list.size(); i-- > 0;) {
    if (i >= kAhead) __builtin_prefetch(&at(counts, list[i - kAhead]));
    const std::int32_t row = list[i];
    if (level(row) > 0) {
      hottest[--end[level(row)]] = row;
    } else {
      list[--rest] = row;
    }
  }
  std::copy_n(hottest.data(), num_hot, list.data());
}

}  // namespace gz
