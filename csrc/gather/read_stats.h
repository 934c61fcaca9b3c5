// Rows that were asked for, and the reads from disk for them.
#pragma once

#include <cstdint>

namespace gz {

struct ReadStats {
  std::int64_t rows = 0;  // asked for, those that several batches want once for each
  std::int64_t hits = 0;  // of those, found in memory
  std::int64_t reads = 0;
  std::uint64_t bytes = 0;         // read
  std::uint64_t useful_bytes = 0;  // of those, in rows asked for
  double seconds = 0;              // from the first read to the last row in its place

  ReadStats& operator+=(const ReadStats& other) noexcept {
    rows += other.rows;
    hits += other.hits;
    reads += other.reads;
    bytes += other.bytes;
    useful_bytes += other.useful_bytes;
    seconds += other.seconds;
    return *this;
  }
};

}  // namespace gz
