// The files of one edge type, written front to back: topology, edge ids, attributes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "build/build_plan.h"
#include "build/degrees.h"
#include "build/node_marks.h"
#include "build/runs.h"
#include "build/slab.h"
#include "storage/column.h"
#include "storage/topology.h"

namespace gz {

struct CscPaths {
  std::string topology;
  std::string edge_id;  // unless the options want none
  std::vector<std::string> columns;
};

// Called between steps with what is done and what there is to do; throws to cancel.
using Checkpoint = std::function<void(std::uint64_t done, std::uint64_t total)>;

class CscFiles {
 public:
  // `num_edges` and `num_reverses` are those that came in; `marks` of the destinations, or null.
  CscFiles(const BuildPlan& plan, const CscPaths& paths, std::uint64_t num_edges,
           std::uint64_t num_reverses, ScratchSpace& space, NodeMarks* marks);

  // The next edges and degrees; each file by a thread of its own.
  void write(const Slab& slab, int threads);
  // Completes and syncs all files. `room` bytes of memory may be used for numbering.
  void finish(std::uint64_t room, int threads, const Checkpoint& checkpoint);

  std::uint64_t num_edges() const noexcept { return written_; }
  // Every slot holds the edge of its number: the file of edge ids, if any, says nothing.
  bool ids_are_slots() const noexcept { return ids_are_slots_; }
  const DegreeCounts& degrees() const noexcept { return degrees_; }

 private:
  void write_degrees(const Slab& slab);
  void write_numbers(const Byte* numbers, std::uint64_t count);
  void write_ids(std::uint64_t* ids, std::uint64_t count);
  void rank_numbers(std::uint64_t room, int threads, const Checkpoint& checkpoint);

  const RecordLayout& layout_;
  const Numbering& numbering_;
  const std::uint64_t num_ids_;  // that there can be
  const std::uint64_t num_edges_;
  const std::uint64_t num_reverses_;
  NodeMarks* marks_;
  TopologyWriter topology_;
  std::uint32_t id_bytes_;
  std::unique_ptr<ColumnWriter> ids_;  // null: not wanted
  std::vector<std::unique_ptr<ColumnWriter>> columns_;
  // Coalescing leaves gaps in the numbers, which are closed when all are known.
  std::unique_ptr<File> gappy_;
  std::uint64_t gappy_written_ = 0;
  std::uint64_t loops_added_ = 0;
  std::uint64_t written_ = 0;
  std::int64_t indptr_ = 0;
  std::uint64_t ids_written_ = 0;
  bool ids_are_slots_ = true;
  DegreeCounts degrees_;
};

}  // namespace gz
