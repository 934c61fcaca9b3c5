// Where rows are to be found of which some were written once more, in another order.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <stop_token>

#include "gather/disk_gather.h"

namespace gz {

// A row's place is among those that were written once more, or behind these, where all rows lie as
// they always did. A bit says of every row which it is, and those that lie once more have the
// number of their place, in as many bits as the largest one needs.
//
// Thread safety: never changes.
class RowOrder {
 public:
  // Of `num_rows` rows, `again` are those that were written once more, in their order there. Raises
  // std::invalid_argument, naming the place, for what is no row, or was there before.
  RowOrder(std::span<const std::int32_t> again, std::int64_t num_rows);

  // What one of so many rows takes, each of which lies once more no more than once.
  static std::int64_t num_bytes(std::int64_t num_rows, std::int64_t num_again) noexcept;

  std::int64_t num_rows() const noexcept { return num_rows_; }
  std::int64_t num_again() const noexcept { return num_again_; }
  std::int64_t num_places() const noexcept { return num_again_ + num_rows(); }

  // REQUIRES 0 <= row < num_rows().
  std::int64_t place_of(std::int64_t row) const noexcept {
    const std::int64_t at = find(row);
    return at < 0 ? num_again_ + row : number(at);
  }

  // Puts their places in place of rows. REQUIRES the same of each.
  void find_places(std::span<std::int64_t> rows) const noexcept { find_all<false>(rows); }

  // Puts in place of rows where they would lie if all lay once: those that lie once more, then the
  // others. REQUIRES the same.
  void find_ranks(std::span<std::int64_t> rows) const noexcept { find_all<true>(rows); }

 private:
  struct Word {
    std::uint64_t bits = 0;
    std::int64_t before = 0;  // rows of the words before that lie once more
  };

  template <bool kAllOnce>
  void find_all(std::span<std::int64_t> rows) const noexcept;

  static std::uint64_t bit_of(std::int64_t row) noexcept { return std::uint64_t{1} << (row & 63); }

  // How many rows before this one lie once more.
  std::int64_t before(std::int64_t row) const noexcept {
    const Word& word = words_[row >> 6];
    return word.before + std::popcount(word.bits & (bit_of(row) - 1));
  }

  // Which of those that lie once more a row is, by row; -1: none.
  std::int64_t find(std::int64_t row) const noexcept {
    return (words_[row >> 6].bits & bit_of(row)) == 0 ? -1 : before(row);
  }

  std::int64_t number(std::int64_t at) const noexcept {
    const std::int64_t first = at * bits_;
    std::uint64_t found = 0;
    std::memcpy(&found, numbers_ + (first >> 3), sizeof found);
    return static_cast<std::int64_t>(found >> (first & 7) & ((std::uint64_t{1} << bits_) - 1));
  }

  std::int64_t num_rows_;
  std::int64_t num_again_;
  int bits_;  // of a number; with seven more they fit 64
  std::shared_ptr<std::byte> pages_;
  Word* words_ = nullptr;         // [row / 64]
  std::byte* numbers_ = nullptr;  // of the rows whose bits are set, one behind the other
};

// Reads rows by their places: those that lie once more from `again`, the others from `file`. As
// DiskGather::gather().
GatherResult gather_places(const RowOrder& order, DiskGather& reader, const ColumnFile& again,
                           const ColumnFile& file, std::span<const RowRequest> requests,
                           const ReadLimits& limits, std::stop_token stop);

}  // namespace gz
