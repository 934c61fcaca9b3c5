// Where rows are to be found of which some were written once more, in another order.
#pragma once

#include <cstdint>
#include <span>

#include "arrays/packed_ints.h"

namespace gz {

// A row's place is among those that were written once more, or behind these, where all rows lie as
// they always did. Rows go by groups of 2^group_bits that follow each other. A bit says of every
// group which it is, and those that lie once more have the number of their place, in as many bits
// as the largest one needs.
//
// Thread safety: never changes.
class RowOrder {
 public:
  // `again`: which groups of `num_rows` rows were written once more, in their order there. Raises
  // std::invalid_argument, naming the place, for what is no whole group, or was there before; and
  // as count_groups().
  RowOrder(std::span<const std::int32_t> again, std::int64_t num_rows, int group_bits = 0);

  // Bytes for num_rows rows, of which num_groups groups are copied.
  static std::int64_t num_bytes(std::int64_t num_rows, std::int64_t num_groups, int group_bits = 0);

  int group_bits() const noexcept { return group_bits_; }
  std::int64_t num_rows() const noexcept { return num_rows_; }
  std::int64_t num_again() const noexcept { return numbers_.size() << group_bits_; }
  std::int64_t num_places() const noexcept { return num_again() + num_rows(); }

  // REQUIRES 0 <= row < num_rows().
  std::int64_t place_of(std::int64_t row) const noexcept {
    const std::int64_t at = lies_again_.find(row >> group_bits_);
    return at < 0 ? num_again() + row : row_of(numbers_[at], row, group_bits_);
  }

  // Puts their places in place of rows. REQUIRES the same of each.
  void find_places(std::span<std::int64_t> rows) const noexcept { find_all(rows, false); }

  // Puts in place of rows where they would lie if all lay once: those that lie once more, then the
  // others. REQUIRES the same.
  void find_ranks(std::span<std::int64_t> rows) const noexcept { find_all(rows, true); }

 private:
  void find_all(std::span<std::int64_t> rows, bool all_once) const noexcept;
  // The row of a group that is where `row` is in its own.
  static std::int64_t row_of(std::int64_t group, std::int64_t row, int bits) noexcept {
    return group << bits | (row & ((std::int64_t{1} << bits) - 1));
  }

  std::int64_t num_rows_;
  int group_bits_;
  RankedBits lies_again_;  // [group]
  PackedInts numbers_;     // places of those groups, by group
};

}  // namespace gz
