// Edges in any order to the CSC files of a store, in as much memory as is given.
//
// Edges are split into buckets of destinations as they come in; buckets that do not fit into memory
// wait in scratch files. Then bucket after bucket is sorted in memory and written. A bucket that
// is too large is split further, and the edges of a single node that are too many are sorted by
// what orders them within its neighbourhood in the same way.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "build/csc_files.h"
#include "build/edge_source.h"
#include "build/neighborhoods.h"
#include "build/runs.h"

namespace gz {

// Resources of a build.
struct BuildRoom {
  std::uint64_t memory;   // bytes for buffers
  std::string directory;  // for scratch files
  int threads;
};

struct CscStatistics {
  EdgeCounts input;
  NeighborhoodCounts result;
  std::uint64_t num_edges = 0;
  bool ids_are_slots = false;
  std::vector<std::uint64_t> degree_quantiles;
  std::uint64_t scratch_bytes = 0;  // written to scratch files
  std::uint64_t scratch_peak = 0;   // the most that lay in them
};

class CscBuilder {
 public:
  static constexpr double kQuantiles[] = {0.0, 0.25, 0.5, 0.75, 0.99, 1.0};

  // The marks may be the same, or null. Raises std::invalid_argument for options that do
  // not go together.
  CscBuilder(CscOptions options, const BuildRoom& room, std::shared_ptr<NodeMarks> src_marks,
             std::shared_ptr<NodeMarks> dst_marks);
  CscBuilder(const CscBuilder&) = delete;
  CscBuilder& operator=(const CscBuilder&) = delete;

  const CscOptions& options() const noexcept { return options_; }
  // Raises std::out_of_range naming the first edge whose id is no node, counted over all slabs;
  // std::invalid_argument if there are more edges than were declared. Nothing may follow an error.
  void append(const EdgeSlab& slab);
  // Writes the files, which must not exist. Nothing may follow.
  CscStatistics finish(const CscPaths& paths, const Checkpoint& checkpoint);

 private:
  // All destinations of `runs`, in order.
  void write_destinations(Runs& runs, CscFiles& files, Slab& slab);
  // Edges of a range, at most, and what they take in a slab.
  std::uint64_t max_edges(const Runs& runs, const DestinationRange& range) const noexcept;
  std::uint64_t slab_bytes(const Runs& runs, const DestinationRange& range) const noexcept;
  bool fits(const Runs& runs, const DestinationRange& range) const noexcept;
  void write_batch(Runs& runs, std::vector<DestinationRange>& ranges, CscFiles& files, Slab& slab);
  void advance(std::uint64_t records);

  // A number that records are sorted by. The second argument is only for the destination of a
  // packed edge: the lowest that it can be.
  using Key = std::uint64_t (CscBuilder::*)(const Byte*, std::uint64_t) const;
  std::uint64_t dst_of(const Byte* edge, std::uint64_t least) const {
    return plan_.packed ? plan_.packed->dst(edge, least) : layout_.dst(edge);
  }
  std::uint64_t src_of(const Byte* record, std::uint64_t) const { return layout_.src(record); }
  std::uint64_t number_of(const Byte* record, std::uint64_t) const {
    return layout_.number(record);
  }
  std::uint64_t time_of(const Byte* record, std::uint64_t) const { return times_(record); }
  class RecordBlock;
  KeyRange make_range(std::uint64_t lo, std::uint64_t hi) const;
  Runs make_runs(std::uint64_t lo, std::uint64_t hi);  // of records
  void add_block(const Byte* records, std::uint64_t count, Key key, Runs* runs);
  // The records of a bucket in their order, in blocks of at most `max_records`:
  // body(records, count).
  template <class Body>
  void each_block(const Runs& runs, std::uint64_t bucket, std::uint64_t max_records,
                  const Body& body);
  // A bucket split by `key`; by default as finely as the keys that occur allow.
  Runs split(const Runs& runs, std::uint64_t bucket, Key key);
  Runs split(const Runs& runs, std::uint64_t bucket, Key key, std::uint64_t lo, std::uint64_t hi);
  // The waiting edges of one node as records.
  Runs unpacked(const Runs& runs, const DestinationRange& range);

  // One node with more edges than can be sorted at once; `runs` are of records.
  void write_hub(const Runs& runs, const DestinationRange& range, CscFiles& files, Slab& slab);
  // Calls body(records, count, is_first, is_last) with the edges of some sources at a time, or, in
  // several blocks, of one source that has too many.
  template <class Body>
  void each_sources(Runs& by_source, const Body& body);
  // Hands the records on, ordered by keys[level], keys[level + 1] …; those are in order already
  // that agree in all of them.
  void write_ordered(Runs& runs, const std::vector<Key>& keys, std::size_t level, CscFiles& files,
                     Slab& slab);
  void write_block(const std::vector<const Byte*>& records, CscFiles& files, Slab& slab);

  CscOptions options_;
  RecordLayout layout_;
  Numbering numbering_;
  EdgeTimes times_;
  BuildPlan plan_;
  int threads_;
  std::shared_ptr<NodeMarks> src_marks_;
  std::shared_ptr<NodeMarks> dst_marks_;
  ScratchSpace space_;
  std::uint64_t sort_bytes_;  // for one thread to sort in
  std::uint64_t slab_bytes_;
  std::uint64_t hub_records_;  // that are sorted at once
  std::uint64_t rank_bytes_;
  std::unique_ptr<Runs> runs_;
  std::vector<std::unique_ptr<NeighborhoodSorter>> sorters_;
  EdgeCounts counts_;
  NeighborhoodCounts hub_counts_;
  const Checkpoint* checkpoint_ = nullptr;
  std::uint64_t done_ = 0;
};

}  // namespace gz
