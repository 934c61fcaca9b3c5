#include "gather/row_order.h"

#include <algorithm>

#include "base/errors.h"
#include "gather/resident_rows.h"

namespace gz {
namespace {

// Groups whose bits are asked for ahead.
constexpr std::size_t kAhead = 16;

}  // namespace

std::int64_t RowOrder::num_bytes(std::int64_t num_rows, std::int64_t num_groups, int group_bits) {
  const int bits = PackedInts::bits_for(static_cast<std::uint64_t>(num_groups));
  return RankedBits::num_bytes(count_groups(num_rows, group_bits)) +
         PackedInts::num_bytes(num_groups, bits);
}

RowOrder::RowOrder(std::span<const std::int32_t> again, std::int64_t num_rows, int group_bits)
    : num_rows_(num_rows),
      group_bits_(group_bits),
      lies_again_(count_groups(num_rows, group_bits)),
      numbers_(std::ssize(again), PackedInts::bits_for(again.size())) {
  const std::int64_t num_whole = num_rows >> group_bits;
  // Calls visit(place, group) for all groups, whose bits were asked for before.
  const auto visit_all = [&](const auto& visit) {
    for (std::size_t place = 0; place < again.size(); ++place) {
      const std::int64_t ahead = again[std::min(place + kAhead, again.size() - 1)];
      if (ahead >= 0 && ahead < num_whole) lies_again_.prefetch(ahead);
      visit(static_cast<std::int64_t>(place), std::int64_t{again[place]});
    }
  };
  visit_all([&](std::int64_t place, std::int64_t group) {
    const bool is_whole = group >= 0 && group < num_whole;
    if (!is_whole || lies_again_.has(group)) {
      throw invalid("again[", place, "]: found ", group, (is_whole ? " once more" : ""),
                    ", expected ", (group_bits == 0 ? "rows" : "whole groups"), " below ",
                    num_whole, ", each once");
    }
    lies_again_.set(group);
  });
  lies_again_.rank();
  visit_all([&](std::int64_t place, std::int64_t group) {
    numbers_.set(lies_again_.before(group), static_cast<std::uint64_t>(place));
  });
}

// Each look waits for memory, so all are announced before the first is taken.
void RowOrder::find_all(std::span<std::int64_t> rows, bool all_once) const noexcept {
  const int bits = group_bits_;
  for (const std::int64_t row : rows) lies_again_.prefetch(row >> bits);
  for (std::int64_t& row : rows) {
    const std::int64_t group = row >> bits;
    const std::int64_t at = lies_again_.find(group);
    if (at >= 0) numbers_.prefetch(at);
    row = at >= 0 ? ~row_of(at, row, bits)
                  : num_again() + row - (all_once ? lies_again_.before(group) << bits : 0);
  }
  for (std::int64_t& row : rows) {
    if (row < 0) row = row_of(numbers_[~row >> bits], ~row, bits);
  }
}

}  // namespace gz
