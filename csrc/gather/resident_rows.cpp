#include "gather/resident_rows.h"

#include <algorithm>

#include "base/errors.h"

namespace gz {

std::int64_t count_groups(std::int64_t num_rows, int group_bits) {
  if (group_bits < 0 || group_bits > 20 || num_rows < 0) {
    throw invalid("group_bits: expected 0 to 20; num_rows: 0 or more");
  }
  return (num_rows + (std::int64_t{1} << group_bits) - 1) >> group_bits;
}

ResidentRows ResidentRows::first(std::int64_t num_rows, int group_bits, std::int64_t count) {
  ResidentRows rows(num_rows, group_bits);
  rows.num_kept_ = std::clamp<std::int64_t>(count, 0, rows.num_groups_);
  return rows;
}

ResidentRows ResidentRows::of(std::int64_t num_rows, int group_bits,
                              std::span<const std::int64_t> groups) {
  ResidentRows rows(num_rows, group_bits);
  if (groups.empty()) return rows;
  rows.kept_ = RankedBits(rows.num_groups_);
  check_range("resident", "group", groups, rows.num_groups_);
  for (const std::int64_t group : groups) rows.kept_.set(group);
  rows.num_kept_ = rows.kept_.rank();
  return rows;
}

ResidentRows ResidentRows::of_bits(std::int64_t num_rows, std::span<const std::uint64_t> words) {
  ResidentRows rows(num_rows, 0);
  rows.kept_ = RankedBits(rows.num_groups_);
  for (std::int64_t i = 0; i < std::ssize(words); ++i) {
    rows.kept_.set_word(i, words[static_cast<std::size_t>(i)]);
  }
  rows.num_kept_ = rows.kept_.rank();
  return rows;
}

}  // namespace gz
