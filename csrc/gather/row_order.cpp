#include "gather/row_order.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "arrays/buffer.h"
#include "io/pages.h"

namespace gz {
namespace {

// Where the last numbers are read from, and what is written behind them.
constexpr std::int64_t kBehind = sizeof(std::uint64_t);
// Rows whose words are asked for ahead.
constexpr std::int64_t kAhead = 16;

int bits_for(std::int64_t num_again) {
  return std::max(1, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(num_again))));
}

}  // namespace

std::int64_t RowOrder::num_bytes(std::int64_t num_rows, std::int64_t num_again) noexcept {
  const auto words = static_cast<std::int64_t>(sizeof(Word)) * ((num_rows + 63) / 64);
  return words + (num_again * bits_for(num_again) + 7) / 8 + kBehind;
}

RowOrder::RowOrder(std::span<const std::int32_t> again, std::int64_t num_rows)
    : num_rows_(num_rows), num_again_(std::ssize(again)), bits_(bits_for(num_again_)) {
  const std::int64_t num_words = (num_rows + 63) / 64;
  const std::int64_t word_bytes = num_words * static_cast<std::int64_t>(sizeof(Word));
  pages_ = make_pages(static_cast<std::size_t>(num_bytes(num_rows, num_again_)));
  words_ = reinterpret_cast<Word*>(pages_.get());
  numbers_ = pages_.get() + word_bytes;
  const auto row_of = [&](std::int64_t place) { return again[static_cast<std::size_t>(place)]; };
  for (std::int64_t place = 0; place < num_again_; ++place) {
    if (place + kAhead < num_again_) __builtin_prefetch(words_ + (row_of(place + kAhead) >> 6), 1);
    const std::int64_t row = row_of(place);
    const bool is_row = row >= 0 && row < num_rows;
    if (!is_row || find(row) >= 0) {
      throw std::invalid_argument("rows[" + std::to_string(place) + "]: found " +
                                  std::to_string(row) + (is_row ? " once more" : "") +
                                  ", expected rows below " + std::to_string(num_rows) +
                                  ", each once");
    }
    words_[row >> 6].bits |= bit_of(row);
  }
  for (std::int64_t word = 1; word < num_words; ++word) {
    words_[word].before = words_[word - 1].before + std::popcount(words_[word - 1].bits);
  }
  for (std::int64_t place = 0; place < num_again_; ++place) {
    if (place + kAhead < num_again_) __builtin_prefetch(words_ + (row_of(place + kAhead) >> 6));
    const std::int64_t first = find(row_of(place)) * bits_;
    std::uint64_t there = 0;
    std::memcpy(&there, numbers_ + (first >> 3), sizeof there);
    there |= static_cast<std::uint64_t>(place) << (first & 7);
    std::memcpy(numbers_ + (first >> 3), &there, sizeof there);
  }
}

// Each look waits for memory, so all are announced before the first is taken.
template <bool kAllOnce>
void RowOrder::find_all(std::span<std::int64_t> rows) const noexcept {
  for (const std::int64_t row : rows) __builtin_prefetch(words_ + (row >> 6));
  for (std::int64_t& row : rows) {
    const std::int64_t at = find(row);
    if (at >= 0) __builtin_prefetch(numbers_ + (at * bits_ >> 3));
    row = at >= 0 ? ~at : num_again_ + row - (kAllOnce ? before(row) : 0);
  }
  for (std::int64_t& row : rows) {
    if (row < 0) row = number(~row);
  }
}

template void RowOrder::find_all<false>(std::span<std::int64_t>) const noexcept;
template void RowOrder::find_all<true>(std::span<std::int64_t>) const noexcept;

GatherResult gather_places(const RowOrder& order, DiskGather& reader, const ColumnFile& again,
                           const ColumnFile& file, std::span<const RowRequest> requests,
                           const ReadLimits& limits, std::stop_token stop) {
  const std::int64_t num_again = order.num_again();
  GatherResult all;
  all.errors.resize(requests.size());
  const auto lies_again = [&](std::int64_t row) { return row < num_again; };
  for (const bool is_again : {true, false}) {
    std::vector<Buffer<std::int64_t>> rows(requests.size()), positions(requests.size());
    std::vector<RowRequest> some;
    for (std::size_t k = 0; k < requests.size(); ++k) {
      const RowRequest& request = requests[k];
      // In order, as those of windows are, they need no copy.
      if (is_again && std::ranges::is_partitioned(request.rows, lies_again)) {
        const auto end = std::ranges::partition_point(request.rows, lies_again);
        const auto count = static_cast<std::size_t>(end - request.rows.begin());
        const bool has_positions = !request.positions.empty();
        some.push_back({request.rows.first(count),
                        request.positions.first(has_positions ? count : 0), request.out});
        continue;
      }
      for (std::size_t i = 0; i < request.rows.size(); ++i) {
        if (lies_again(request.rows[i]) != is_again) continue;
        rows[k].push_back(is_again ? request.rows[i] : request.rows[i] - num_again);
        positions[k].push_back(request.positions.empty() ? static_cast<std::int64_t>(i)
                                                         : request.positions[i]);
      }
      some.push_back({rows[k].span(), positions[k].span(), request.out});
    }
    const GatherResult got = reader.gather(is_again ? again : file, some, limits, {}, stop);
    all.stats += got.stats;
    for (std::size_t k = 0; k < requests.size(); ++k) {
      if (!all.errors[k]) all.errors[k] = got.errors[k];
    }
    all.stopped = got.stopped;
    if (all.stopped) break;
  }
  return all;
}

}  // namespace gz
