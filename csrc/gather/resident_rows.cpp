#include "gather/resident_rows.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/errors.h"

namespace gz {

std::int64_t count_groups(std::int64_t num_rows, int group_bits) {
  if (group_bits < 0 || group_bits > 20 || num_rows < 0) {
    throw std::invalid_argument("group_bits: expected 0 to 20; num_rows: 0 or more");
  }
  return (num_rows + (std::int64_t{1} << group_bits) - 1) >> group_bits;
}

ResidentRows::ResidentRows(std::int64_t num_rows, int group_bits)
    : num_rows_(num_rows),
      num_groups_(count_groups(num_rows, group_bits)),
      group_bits_(group_bits) {}

ResidentRows ResidentRows::first(std::int64_t num_rows, int group_bits, std::int64_t count) {
  ResidentRows rows(num_rows, group_bits);
  rows.num_kept_ = std::clamp<std::int64_t>(count, 0, rows.num_groups_);
  return rows;
}

ResidentRows ResidentRows::of(std::int64_t num_rows, int group_bits,
                              std::span<const std::int64_t> groups) {
  ResidentRows rows(num_rows, group_bits);
  if (groups.empty()) return rows;
  check_range("resident", "group", groups, rows.num_groups_);
  const auto kept = std::make_shared<RankedBits>(rows.num_groups_);
  for (const std::int64_t group : groups) kept->set(group);
  rows.num_kept_ = kept->rank();
  rows.kept_ = kept;
  return rows;
}

ResidentRows ResidentRows::of_bits(std::shared_ptr<const RankedBits> bits) {
  ResidentRows rows(bits->size(), 0);
  rows.num_kept_ = bits->count();
  rows.kept_ = std::move(bits);
  return rows;
}

std::int64_t ResidentRows::next_kept(std::int64_t group) const noexcept {
  if (kept_ != nullptr) return kept_->next(group);
  return group < num_kept_ ? group : num_groups_;
}

}  // namespace gz
