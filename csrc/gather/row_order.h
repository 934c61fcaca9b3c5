// Where rows are to be found of which some were written once more, in another order.
#pragma once

#include <cstdint>
#include <span>

#include "arrays/buffer.h"

namespace gz {

// A row's place is among those that were written once more, or behind these, where all rows lie as
// they always did.
//
// Thread safety: never changes.
class RowOrder {
 public:
  // `places[row]`: which of the `num_again` rows that were written once more it is, or -1. Raises
  // std::invalid_argument for any other number, naming the row.
  RowOrder(std::span<const std::int32_t> places, std::int64_t num_again);

  std::int64_t num_rows() const noexcept { return places_.size(); }
  std::int64_t num_again() const noexcept { return num_again_; }
  std::int64_t num_places() const noexcept { return num_again_ + num_rows(); }

  // REQUIRES 0 <= row < num_rows().
  std::int64_t place_of(std::int64_t row) const noexcept {
    const std::int32_t place = places_[row];
    return place < 0 ? num_again_ + row : place;
  }

 private:
  Buffer<std::int32_t> places_;
  std::int64_t num_again_;
};

}  // namespace gz
