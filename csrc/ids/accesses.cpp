#include "ids/accesses.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include "arrays/buffer.h"

namespace gz {
namespace {

constexpr std::size_t kAhead = 16;

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

}  // namespace gz
