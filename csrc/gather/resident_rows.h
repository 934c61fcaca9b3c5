// Which rows of a table are kept in memory, and where among those each one is.
#pragma once

#include <cstdint>

namespace gz {

// How many groups of 2^group_bits rows there are, a last one that is not whole among them. Raises
// std::invalid_argument for fewer rows than none, or group_bits that are not 0 to 20.
std::int64_t count_groups(std::int64_t num_rows, int group_bits);

// The first groups of 2^group_bits rows that follow each other: one row each where rows are large,
// a page full where they are items of a few bytes.
// Thread safety: immutable.
class ResidentRows {
 public:
  // The first `count` groups of a table, as far as it has any.
  ResidentRows(std::int64_t num_rows, int group_bits, std::int64_t count);

  std::int64_t num_rows() const noexcept { return num_rows_; }
  // Groups that are kept, and the places for rows that they take together.
  std::int64_t num_kept() const noexcept { return num_kept_; }
  std::int64_t num_places() const noexcept { return num_kept_ << group_bits_; }
  int group_bits() const noexcept { return group_bits_; }

  // The place of a row, or -1 if it is not kept. REQUIRES 0 <= row < num_rows.
  std::int64_t find(std::int64_t row) const noexcept { return row < num_places() ? row : -1; }

 private:
  std::int64_t num_rows_;
  std::int64_t num_kept_;
  int group_bits_;
};

}  // namespace gz
