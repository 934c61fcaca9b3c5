// Which rows batches use: how many batches use each, which of them is used first, and the order in
// which they should lie for that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gz {

using Counts = std::span<std::int16_t>;
using RowList = std::span<std::int32_t>;

// Adds 1 to the count of every row that occurs in `rows`, however often it does: rows of one batch.
// A count stays at the most that it can be. Raises std::out_of_range, before anything is counted,
// for a row that is not there.
void count_rows(std::span<const std::int64_t> rows, Counts counts);

// Puts those of `rows` that are not in `list` yet behind its first `met` items, in their order, and
// returns how many these are then. `bits` has a bit of each row, which is set if the list has it:
// none at first. REQUIRES: the list has as many items as there are rows. Raises as count_rows(),
// and std::invalid_argument if the bits are not those of the list.
std::int64_t add_rows(std::span<const std::int64_t> rows, std::span<std::byte> bits, RowList list,
                      std::int64_t met);

// Moves the rows of a list that more than `hot` batches use to its front, by how many these are.
// Equals, and the others, stay in their order. Takes as much memory as the moved rows do. Raises
// std::out_of_range, before anything moves, for a row without a count.
void hottest_first(std::span<const std::int16_t> counts, RowList list, std::int32_t hot);

}  // namespace gz
