// Which rows batches use: how many batches use each, and which of them is used first.
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

}  // namespace gz
