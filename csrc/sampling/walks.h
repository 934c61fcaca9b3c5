// Random walks: many at a time, from each node to a random neighbour.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "arrays/buffer.h"
#include "sampling/graph.h"

namespace gz {

// A request for walks. Nodes of an edge type's CSC are walked from destination to source: who
// wants walks along edges gives the CSC of the reversed ones.
struct WalkRequest {
  std::span<const std::int64_t> start;
  std::vector<std::size_t> steps;  // the edge type of each step
  // For node2vec (Grover, Leskovec 2016, "node2vec: Scalable Feature Learning for Networks"): a
  // step back to the node before weighs 1 / p, one to a neighbour of that node 1, others 1 / q.
  // Others than 1 REQUIRE that all steps are of one edge type.
  double p = 1;
  double q = 1;
  // Where an edge type has times: of each walk, which ones an edge may have that it takes. Empty
  // `earliest`: whatever is not later. Node2vec's neighbours are those by such edges.
  std::span<const std::int64_t> latest, earliest;
  double restart = 0;  // the probability of a step that goes to the walk's start
  bool stay = false;   // a walk that ended repeats its last node
  bool wants_slots = false;
  std::uint64_t key = 0;
  int threads = 0;
  std::int64_t max_bytes = 0;  // of neighbours that are read at once, where some are paged

  bool is_biased() const { return p != 1 || q != 1; }
  bool is_timed() const { return !latest.empty(); }
};

struct Walks {
  Buffer<std::int64_t> nodes;  // [walk, step + 1]; -1 behind the end of a walk
  Buffer<std::int64_t> slots;  // [walk, step]: of the edge; -1 where there was none
};

// Thread safety: immutable.
class Walker {
 public:
  // `is_sorted` says of which edge types the neighbours of every node ascend: p and q look for one
  // among them. Raises as SampledGraph::check() does.
  Walker(SampledGraph graph, std::vector<bool> is_sorted);

  // Walk i is a function of (key, i) and the graph. `checkpoint` is called on this thread every
  // few tenths of a second and may raise to cancel. Raises std::out_of_range where a start is no
  // node, FormatError where a file is damaged, OsError where one cannot be read,
  // std::invalid_argument for steps that do not follow on each other, for edges with times and
  // walks without, and for p and q where edges have times and are paged.
  Walks walk(const WalkRequest& request, const std::function<void()>& checkpoint) const;

 private:
  void check(const WalkRequest& request) const;

  SampledGraph graph_;
  std::vector<bool> is_sorted_;
};

}  // namespace gz
