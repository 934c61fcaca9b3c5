#include "gather/resident_rows.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace gz {

ResidentRows::ResidentRows(std::int64_t num_rows, int group_bits)
    : num_rows_(num_rows),
      num_groups_((num_rows + (std::int64_t{1} << group_bits) - 1) >> group_bits),
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
  rows.words_.resize(static_cast<std::size_t>((rows.num_groups_ + 63) >> 6));
  for (const std::int64_t group : groups) {
    if (group < 0 || group >= rows.num_groups_) {
      throw std::out_of_range("resident rows: found group " + std::to_string(group) +
                              ", expected 0 <= group < " + std::to_string(rows.num_groups_));
    }
    rows.words_[static_cast<std::size_t>(group >> 6)].bits |= std::uint64_t{1} << (group & 63);
  }
  for (Word& word : rows.words_) {
    word.before = rows.num_kept_;
    rows.num_kept_ += std::popcount(word.bits);
  }
  return rows;
}

}  // namespace gz
