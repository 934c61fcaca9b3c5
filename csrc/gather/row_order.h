// Where rows are to be found of which some were written once more, in another order.
#pragma once

#include <cstdint>
#include <span>
#include <stop_token>

#include "arrays/packed_ints.h"
#include "gather/disk_gather.h"

namespace gz {

// A row's place is among those that were written once more, or behind these, where all rows lie as
// they always did. A bit says of every row which it is, and those that lie once more have the
// number of their place, in as many bits as the largest one needs.
//
// Thread safety: never changes.
class RowOrder {
 public:
  // `again`: which of `num_rows` rows were written once more, in their order there. Raises
  // std::invalid_argument, naming the place, for what is no row, or was there before.
  RowOrder(std::span<const std::int32_t> again, std::int64_t num_rows);

  // Bytes for num_rows rows, num_again copied.
  static std::int64_t num_bytes(std::int64_t num_rows, std::int64_t num_again) noexcept;

  std::int64_t num_rows() const noexcept { return lies_again_.size(); }
  std::int64_t num_again() const noexcept { return numbers_.size(); }
  std::int64_t num_places() const noexcept { return num_again() + num_rows(); }

  // REQUIRES 0 <= row < num_rows().
  std::int64_t place_of(std::int64_t row) const noexcept {
    const std::int64_t at = lies_again_.find(row);
    return at < 0 ? num_again() + row : numbers_[at];
  }

  // Puts their places in place of rows. REQUIRES the same of each.
  void find_places(std::span<std::int64_t> rows) const noexcept { find_all<false>(rows); }

  // Puts in place of rows where they would lie if all lay once: those that lie once more, then the
  // others. REQUIRES the same.
  void find_ranks(std::span<std::int64_t> rows) const noexcept { find_all<true>(rows); }

 private:
  template <bool kAllOnce>
  void find_all(std::span<std::int64_t> rows) const noexcept;

  RankedBits lies_again_;
  PackedInts numbers_;  // places of those rows, by row
};

// Reads rows by their places: those that lie once more from `again`, the others from `file`, like
// DiskGather::gather().
GatherResult gather_places(const RowOrder& order, DiskGather& reader, const ColumnFile& again,
                           const ColumnFile& file, std::span<const RowRequest> requests,
                           const ReadLimits& limits, std::stop_token stop);

}  // namespace gz
