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
