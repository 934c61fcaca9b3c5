// Which rows batches use: how many batches use each, which of them is used first, and the order in
// which they should lie for that.
#pragma once

#include <cstdint>
#include <span>

namespace gz {

// Adds 1 to the count of every row that occurs in `rows`, however often it does: rows of one batch.
// Raises std::out_of_range, before anything is counted, for a row that is not there.
void count_rows(std::span<const std::int64_t> rows, std::span<std::int32_t> counts);

// Gives the numbers next, next + 1 … to those of `rows` that have none yet (-1), in their order,
// and returns the number after the last. REQUIRES: as many numbers fit Place as there are places.
// Raises as count_rows().
template <class Place>
std::int64_t number_rows(std::span<const std::int64_t> rows, std::span<Place> places,
                         std::int64_t next);

// The order in which rows should lie. Those that more than `hot` batches use come first, by how
// many these are (above a million they are equals); equals, and then the other rows that
// are used, by first touch; then the rest as they lie. `places` are from number_rows(), over all
// rows from 0 on; they become the old row of every new one. Returns how many rows are used.
// Beside both arrays this takes as much memory as `places`. REQUIRES: as for number_rows().
// Raises std::invalid_argument if the sizes differ, or the places are not those numbers.
template <class Place>
std::int64_t order_rows(std::span<const std::int32_t> counts, std::span<Place> places,
                        std::int32_t hot);

}  // namespace gz
