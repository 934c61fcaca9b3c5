#include "gather/row_order.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "io/pages.h"

namespace gz {
namespace {

// Where the last numbers are read from, and what is written behind them.
constexpr std::int64_t kBehind = sizeof(std::uint64_t);

int bits_for(std::int64_t num_again) {
  return std::max(1, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(num_again))));
}

}  // namespace

std::int64_t RowOrder::num_bytes(std::int64_t num_rows, std::int64_t num_again) noexcept {
  const auto words = static_cast<std::int64_t>(sizeof(Word)) * ((num_rows + 63) / 64);
  return words + (num_again * bits_for(num_again) + 7) / 8 + kBehind;
}

RowOrder::RowOrder(std::span<const std::int32_t> places, std::int64_t num_again)
    : num_rows_(std::ssize(places)), num_again_(num_again), bits_(bits_for(num_again)) {
  std::int64_t count = 0;
  for (std::size_t row = 0; row < places.size(); ++row) {
    if (places[row] < -1 || places[row] >= num_again) {
      throw std::invalid_argument("places[" + std::to_string(row) + "]: found " +
                                  std::to_string(places[row]) + ", expected -1 <= place < " +
                                  std::to_string(num_again));
    }
    count += places[row] >= 0 ? 1 : 0;
  }
  const std::int64_t num_words = (num_rows_ + 63) / 64;
  const std::int64_t word_bytes = num_words * static_cast<std::int64_t>(sizeof(Word));
  pages_ = make_pages(static_cast<std::size_t>(word_bytes + (count * bits_ + 7) / 8 + kBehind));
  words_ = reinterpret_cast<Word*>(pages_.get());
  numbers_ = pages_.get() + word_bytes;
  std::int64_t at = 0;
  for (std::int64_t row = 0; row < num_rows_; ++row) {
    Word& word = words_[row >> 6];
    if ((row & 63) == 0) word.before = at;
    const std::int32_t place = places[static_cast<std::size_t>(row)];
    if (place < 0) continue;
    word.bits |= std::uint64_t{1} << (row & 63);
    const std::int64_t first = at++ * bits_;
    std::uint64_t there = 0;
    std::memcpy(&there, numbers_ + (first >> 3), sizeof there);
    there |= static_cast<std::uint64_t>(place) << (first & 7);
    std::memcpy(numbers_ + (first >> 3), &there, sizeof there);
  }
}

// Each look waits for memory, so all are announced before the first is taken.
void RowOrder::find_places(std::span<std::int64_t> rows) const noexcept {
  for (const std::int64_t row : rows) __builtin_prefetch(words_ + (row >> 6));
  for (std::int64_t& row : rows) {
    const std::int64_t at = find(row);
    if (at >= 0) __builtin_prefetch(numbers_ + (at * bits_ >> 3));
    row = at < 0 ? num_again_ + row : ~at;
  }
  for (std::int64_t& row : rows) {
    if (row < 0) row = number(~row);
  }
}

}  // namespace gz
