// Splits records by their keys, with all threads and without changing their order in a bucket.
#pragma once

#include <cstdint>
#include <vector>

#include "build/packed_edges.h"
#include "build/records.h"
#include "build/runs.h"

namespace gz {

// Items of the input in order, each of which becomes some records. Items are asked for twice, in
// pieces, by one thread per slice: their keys first, then their records.
class RecordSource {
 public:
  // Items of one piece at most.
  static constexpr std::int64_t kPiece = 1024;
  static constexpr std::int64_t kMaxRecordsPerItem = 2;

  virtual ~RecordSource() = default;
  virtual std::int64_t num_items() const = 0;
  // The keys of the records of items [begin, end) into `keys`; returns how many there are.
  virtual std::int64_t keys(int slice, std::int64_t begin, std::int64_t end,
                            std::uint64_t* keys) = 0;
  // Called once between the two rounds.
  virtual void counted() {}
  // The records themselves, either in memory of the source's or made in `space`. They are as many,
  // and in the same order, as the keys were; what is made may reach PackedEdges::kSlack bytes
  // further.
  virtual const Byte* records(int slice, std::int64_t begin, std::int64_t end, Byte* space) = 0;
};

// Adds one run of all the records of `source` to `runs`, in no more slices than `threads`.
// REQUIRES fewer than 2^32 records.
void partition(RecordSource& source, int threads, Runs& runs);

}  // namespace gz
