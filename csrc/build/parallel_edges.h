// Merging edges between the same two nodes.
#pragma once

#include <cstdint>
#include <vector>

#include "arrays/buffer.h"
#include "build/build_plan.h"

namespace gz {

// Merges the edges of one destination, which come by source, and those of a source by number: the
// first one stays, with attributes joined as Coalesce says. Sums of integers are exact and must fit
// the dtype; fractions are added in double precision and rounded once.
class EdgeMerger {
 public:
  explicit EdgeMerger(const BuildPlan& plan);

  // Calls put(record) with the edge before, if it is complete by now.
  // Raises std::invalid_argument when a sum does not fit, as flush() does.
  template <class Put>
  void add(const Byte* record, const Put& put) {
    if (count_ > 0 && layout_.src(record) != layout_.src(first_.data())) flush(put);
    join(record);
  }
  // The last one is complete.
  template <class Put>
  void flush(const Put& put) {
    if (count_ > 0) put(finish());
    count_ = 0;
  }

 private:
  struct Item {  // of a record: one number to be joined
    std::uint32_t at;
    const PayloadColumn* column;
    std::uint64_t joined = 0;  // bits of a double or int64
  };
  void join(const Byte* record);
  const Byte* finish();

  const RecordLayout& layout_;
  Coalesce how_;
  std::vector<Item> items_;
  std::vector<Byte> first_;  // of the edges that are being merged
  std::uint64_t count_ = 0;
};

}  // namespace gz
