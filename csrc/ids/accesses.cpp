#include "ids/accesses.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "arrays/buffer.h"

namespace gz {
namespace {

constexpr std::size_t kAhead = 16;
// Counts above this are not told apart.
constexpr std::int32_t kMostCounts = 1 << 20;

void check(std::span<const std::int64_t> rows, std::size_t num_rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (static_cast<std::uint64_t>(rows[i]) < num_rows) continue;
    throw std::out_of_range("rows[" + std::to_string(i) + "]: found row " +
                            std::to_string(rows[i]) + ", expected 0 <= row < " +
                            std::to_string(num_rows));
  }
}

template <class Item>
Item& at(std::span<Item> items, std::int64_t row) {
  return items[static_cast<std::size_t>(row)];
}

template <class Item>
void prefetch(std::span<Item> items, std::span<const std::int64_t> rows, std::size_t i) {
  if (i + kAhead < rows.size()) __builtin_prefetch(&at(items, rows[i + kAhead]), 1);
}

}  // namespace

void count_rows(std::span<const std::int64_t> rows, std::span<std::int32_t> counts) {
  check(rows, counts.size());
  // All are read before any is written: a row that occurs twice gets the same count twice.
  Buffer<std::int32_t> counted(std::ssize(rows));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    prefetch(counts, rows, i);
    const std::int32_t count = at(counts, rows[i]);
    counted[static_cast<std::int64_t>(i)] =
        count + (count < std::numeric_limits<std::int32_t>::max());
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    prefetch(counts, rows, i);
    at(counts, rows[i]) = counted[static_cast<std::int64_t>(i)];
  }
}

template <class Place>
std::int64_t number_rows(std::span<const std::int64_t> rows, std::span<Place> places,
                         std::int64_t next) {
  check(rows, places.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    prefetch(places, rows, i);
    Place& place = at(places, rows[i]);
    if (place < 0) place = static_cast<Place>(next++);
  }
  return next;
}

template std::int64_t number_rows(std::span<const std::int64_t>, std::span<std::int32_t>,
                                  std::int64_t);
template std::int64_t number_rows(std::span<const std::int64_t>, std::span<std::int64_t>,
                                  std::int64_t);

template <class Place>
std::int64_t order_rows(std::span<const std::int32_t> counts, std::span<Place> places,
                        std::int32_t hot) {
  if (counts.size() != places.size()) {
    throw std::invalid_argument("places: found " + std::to_string(places.size()) +
                                ", expected one for each of " + std::to_string(counts.size()) +
                                " counts");
  }
  const auto size = std::ssize(places);
  std::int64_t next = 0;
  for (const Place place : places) next = std::max(next, std::int64_t{place} + 1);
  for (std::int64_t row = 0; row < size; ++row) {  // used, but not met when touches were noted
    if (at(places, row) < 0 && at(counts, row) > 0) at(places, row) = static_cast<Place>(next++);
  }
  const std::int64_t used = next;
  Buffer<Place> by_touch(size);
  std::fill_n(by_touch.data(), size, Place{-1});
  for (std::int64_t row = 0; row < size; ++row) {
    const std::int64_t place = at(places, row) < 0 ? next++ : at(places, row);
    if (place >= size || by_touch[place] >= 0) {
      throw std::invalid_argument("places[" + std::to_string(row) + "]: found " +
                                  std::to_string(place) + ", expected 0, 1 ... once each");
    }
    by_touch[place] = static_cast<Place>(row);
  }

  // How far a row's count is above `hot`; where the rows of each level begin, the highest first.
  const auto level = [&](std::int64_t row) {
    return static_cast<std::size_t>(std::max(0, std::min(at(counts, row), kMostCounts) - hot));
  };
  std::vector<std::int64_t> begin(2);
  for (std::int64_t row = 0; row < size; ++row) {
    if (begin.size() < level(row) + 2) begin.resize(level(row) + 2);
    ++begin[level(row)];
  }
  for (std::size_t i = begin.size() - 1; i-- > 0;) begin[i] += begin[i + 1];
  for (std::int64_t i = 0; i < size; ++i) {
    const auto ahead = i + static_cast<std::int64_t>(kAhead);
    if (ahead < size) __builtin_prefetch(&at(counts, by_touch[ahead]));
    at(places, begin[level(by_touch[i]) + 1]++) = by_touch[i];
  }
  return used;
}

template std::int64_t order_rows(std::span<const std::int32_t>, std::span<std::int32_t>,
                                 std::int32_t);
template std::int64_t order_rows(std::span<const std::int32_t>, std::span<std::int64_t>,
                                 std::int32_t);

}  // namespace gz
