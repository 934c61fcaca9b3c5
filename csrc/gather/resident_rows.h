// Which rows of a table are kept in memory, and where among those each one is.
#pragma once

#include <cstdint>
#include <span>

#include "arrays/packed_ints.h"

namespace gz {

// How many groups of 2^group_bits rows there are, a last one that is not whole among them. Raises
// std::invalid_argument for fewer rows than none, or group_bits that are not 0 to 20.
std::int64_t count_groups(std::int64_t num_rows, int group_bits);

// Rows go by groups of 2^group_bits that follow each other: one row each where rows are large, a
// page full where they are items of a few bytes. Two bits for each group; nothing where
// the groups kept are the first ones.
// Thread safety: immutable.
class ResidentRows {
 public:
  // The first `count` groups of a table.
  static ResidentRows first(std::int64_t num_rows, int group_bits, std::int64_t count);
  // These groups, in any order. Raises std::out_of_range for one that is not there.
  static ResidentRows of(std::int64_t num_rows, int group_bits,
                         std::span<const std::int64_t> groups);

  // The rows whose bits are set, one by one: row i's is bit i % 64 of word i / 64.
  static ResidentRows of_bits(std::int64_t num_rows, std::span<const std::uint64_t> words);

  std::int64_t num_rows() const noexcept { return num_rows_; }
  std::int64_t num_groups() const noexcept { return num_groups_; }
  // Groups that are kept, and the places for rows that they take together.
  std::int64_t num_kept() const noexcept { return num_kept_; }
  std::int64_t num_places() const noexcept { return num_kept_ << group_bits_; }
  int group_bits() const noexcept { return group_bits_; }

  // The place of a row, or -1 if it is not kept. REQUIRES 0 <= row < num_rows.
  std::int64_t find(std::int64_t row) const noexcept {
    const std::int64_t group = row >> group_bits_;
    std::int64_t at = group;
    if (kept_.size() > 0) {
      if (!kept_.has(group)) return -1;
      at = kept_.before(group);
    } else if (group >= num_kept_) {
      return -1;
    }
    return (at << group_bits_) + (row - (group << group_bits_));
  }

  // The first group that is kept, from `group` on; num_groups() if there is none.
  std::int64_t next_kept(std::int64_t group) const noexcept {
    if (kept_.size() > 0) return kept_.next(group);
    return group < num_kept_ ? group : num_groups_;
  }

 private:
  ResidentRows(std::int64_t num_rows, int group_bits)
      : num_rows_(num_rows),
        num_groups_(count_groups(num_rows, group_bits)),
        group_bits_(group_bits) {}

  std::int64_t num_rows_;
  std::int64_t num_groups_;
  std::int64_t num_kept_ = 0;
  int group_bits_;
  RankedBits kept_;  // [group]; empty: the first num_kept_ groups
};

}  // namespace gz
