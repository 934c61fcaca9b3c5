#include "gather/row_order.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "arrays/buffer.h"

namespace gz {
namespace {

// Rows whose bits are asked for ahead.
constexpr std::size_t kAhead = 16;

int bits_for(std::int64_t num_again) {
  return PackedInts::bits_for(static_cast<std::uint64_t>(num_again));
}

}  // namespace

std::int64_t RowOrder::num_bytes(std::int64_t num_rows, std::int64_t num_again) noexcept {
  return RankedBits::num_bytes(num_rows) + PackedInts::num_bytes(num_again, bits_for(num_again));
}

RowOrder::RowOrder(std::span<const std::int32_t> again, std::int64_t num_rows)
    : lies_again_(num_rows), numbers_(std::ssize(again), bits_for(std::ssize(again))) {
  // Calls visit(place, row) for all rows, whose bits were asked for before.
  const auto visit_all = [&](const auto& visit) {
    for (std::size_t place = 0; place < again.size(); ++place) {
      const std::int64_t ahead = again[std::min(place + kAhead, again.size() - 1)];
      if (ahead >= 0 && ahead < num_rows) lies_again_.prefetch(ahead);
      visit(static_cast<std::int64_t>(place), std::int64_t{again[place]});
    }
  };
  visit_all([&](std::int64_t place, std::int64_t row) {
    const bool is_row = row >= 0 && row < num_rows;
    if (!is_row || lies_again_.has(row)) {
      throw std::invalid_argument("rows[" + std::to_string(place) + "]: found " +
                                  std::to_string(row) + (is_row ? " once more" : "") +
                                  ", expected rows below " + std::to_string(num_rows) +
                                  ", each once");
    }
    lies_again_.set(row);
  });
  lies_again_.rank();
  visit_all([&](std::int64_t place, std::int64_t row) {
    numbers_.set(lies_again_.before(row), static_cast<std::uint64_t>(place));
  });
}

// Each look waits for memory, so all are announced before the first is taken.
template <bool kAllOnce>
void RowOrder::find_all(std::span<std::int64_t> rows) const noexcept {
  for (const std::int64_t row : rows) lies_again_.prefetch(row);
  for (std::int64_t& row : rows) {
    const std::int64_t at = lies_again_.find(row);
    if (at >= 0) numbers_.prefetch(at);
    row = at >= 0 ? ~at : num_again() + row - (kAllOnce ? lies_again_.before(row) : 0);
  }
  for (std::int64_t& row : rows) {
    if (row < 0) row = numbers_[~row];
  }
}

template void RowOrder::find_all<false>(std::span<std::int64_t>) const noexcept;
template void RowOrder::find_all<true>(std::span<std::int64_t>) const noexcept;

GatherResult gather_places(const RowOrder& order, DiskGather& reader, const ColumnFile& again,
                           const ColumnFile& file, std::span<const RowRequest> requests,
                           const ReadLimits& limits, std::stop_token stop) {
  GatherResult all;
  all.errors.resize(requests.size());
  for (const bool is_again : {true, false}) {
    const std::int64_t first = is_again ? 0 : order.num_again();
    std::vector<Buffer<std::int64_t>> rows(requests.size()), positions(requests.size());
    std::vector<RowRequest> some;
    for (std::size_t k = 0; k < requests.size(); ++k) {
      const RowRequest& request = requests[k];
      for (std::size_t i = 0; i < request.rows.size(); ++i) {
        if ((request.rows[i] < order.num_again()) != is_again) continue;
        rows[k].push_back(request.rows[i] - first);
        positions[k].push_back(request.positions.empty() ? static_cast<std::int64_t>(i)
                                                         : request.positions[i]);
      }
      some.push_back({rows[k].span(), positions[k].span(), request.out});
    }
    const GatherResult got = reader.gather(is_again ? again : file, some, limits, stop);
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
