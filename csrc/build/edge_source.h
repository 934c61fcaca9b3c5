// Edges as they come in, checked, turned into records: loops dropped, reverses added.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "build/build_plan.h"
#include "build/node_marks.h"
#include "build/partition.h"

namespace gz {

// Raises std::out_of_range unless 0 <= id < num_nodes.
void check_end(std::uint64_t edge, const char* end, std::int64_t id, std::uint64_t num_nodes);

// Ids in memory of the caller.
struct IdArray {
  const void* data;
  std::int64_t stride;  // in items
  enum class Kind { kInt64, kInt32, kUint32, kUint64 } kind;

  // ids[begin … end) into `out`; negative ones become huge.
  void read(std::int64_t begin, std::int64_t end, std::uint64_t* out) const noexcept;
};

struct EdgeSlab {
  IdArray src;
  IdArray dst;
  std::vector<const Byte*> columns;  // rows without gaps
  // The edges begin … end - 1 of these arrays.
  std::int64_t begin;
  std::int64_t end;
};

// Counts of the edges that a build has seen so far.
struct EdgeCounts {
  std::uint64_t input = 0;  // edges
  std::uint64_t loops = 0;  // among them
  std::uint64_t edges = 0;  // that are kept
  std::uint64_t reverses = 0;
};

// One slab as a source for partition(), keyed by destination.
class EdgeSource final : public RecordSource {
 public:
  // `marks` are those of the sources, or null. Raises std::out_of_range, from partition(), naming
  // the first edge whose id is no node, and std::invalid_argument for a time that is NaN.
  EdgeSource(const BuildPlan& plan, NodeMarks* marks, const EdgeSlab& slab, EdgeCounts& counts,
             int slices);

  std::int64_t num_items() const override { return slab_.end - slab_.begin; }
  std::int64_t keys(int slice, std::int64_t begin, std::int64_t end, std::uint64_t* keys) override;
  void counted() override;
  const Byte* records(int slice, std::int64_t begin, std::int64_t end, Byte* space) override;

 private:
  struct Slice {
    std::uint64_t loops = 0;
    std::uint64_t edges = 0;     // in the second round: the number of the next one
    std::uint64_t reverses = 0;  // likewise
    std::int64_t bad = -1;       // the first edge that is refused
    std::uint64_t src[kPiece];
    std::uint64_t dst[kPiece];
  };
  bool is_loop(std::uint64_t src, std::uint64_t dst) const noexcept {
    return !options_.bipartite && src == dst;
  }
  const Byte* packed(Slice& slice, std::int64_t count, Byte* space) const noexcept;
  void check(Slice& slice, std::int64_t begin, std::int64_t end) const noexcept;
  [[noreturn]] void refuse(std::int64_t edge) const;

  const CscOptions& options_;
  const RecordLayout& layout_;
  const Numbering& numbering_;
  const EdgeTimes& times_;
  const std::optional<PackedEdges>& packed_;
  NodeMarks* marks_;
  const EdgeSlab& slab_;
  EdgeCounts& counts_;
  std::vector<Slice> slices_;
  bool counting_ = true;
};

}  // namespace gz
