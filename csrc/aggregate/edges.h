// Edges of a batch, grouped by destination, and loops over them by several threads: in their own
// order, and in that of their sources.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "arrays/buffer.h"
#include "arrays/parallel.h"
#include "base/isa.h"

namespace gz {

// In-edges of destination d are those from bounds[d] to before bounds[d + 1]; there may be more
// edges before and behind all these, which have no destination.
struct GroupedEdges {
  std::span<const std::int64_t> src;     // of every edge, a row of the sources
  std::span<const std::int64_t> bounds;  // one more than destinations
  std::int64_t num_src = 0;
  int threads = 0;  // 0: as many as torch uses; what comes out is the same with any number

  std::int64_t num_dst() const noexcept { return std::ssize(bounds) - 1; }
};

// Raises std::invalid_argument where bounds do not ascend within the edges. All functions below
// REQUIRE edges that were checked.
void check_bounds(const GroupedEdges& edges);
// And std::out_of_range where an edge's source is none.
void check_edges(const GroupedEdges& edges);

// Zeros for edges without a destination; `out` has `size` numbers for each edge.
template <class T>
void clear_rest(const GroupedEdges& edges, std::int64_t size, T* out) {
  std::fill_n(out, edges.bounds.front() * size, T{});
  std::fill(out + edges.bounds.back() * size, out + std::ssize(edges.src) * size, T{});
}

// Destinations in pieces with about as many edges each, whatever their degrees and however many
// threads there are.
class EdgePieces {
 public:
  EdgePieces(const GroupedEdges& edges, std::int64_t piece_edges);
  // At most `parts` pieces.
  static EdgePieces in_parts(const GroupedEdges& edges, std::int64_t parts);

  std::int64_t count() const noexcept { return count_; }
  // The first destination of a piece; of number count(), how many destinations there are.
  std::int64_t first(std::int64_t piece) const noexcept;

 private:
  std::span<const std::int64_t> bounds_;
  std::int64_t size_, count_;
};

// Calls body(first, last) for runs of destinations that cover all of them, on several threads.
void for_destinations(const GroupedEdges& edges, RangeBody body);

// Edges whose rows are asked for ahead.
inline constexpr std::int64_t kEdgesAhead = 16;

// Calls body(d, scratch) for every destination, on several threads, with `size` numbers to work in.
// REQUIRES as run_widest().
template <class S, class Body>
void each_destination(const GroupedEdges& edges, std::int64_t size, const Body& body) {
  for_destinations(edges, [&](std::int64_t first, std::int64_t last) {
    std::vector<S> scratch(static_cast<std::size_t>(size));
    run_widest([&]() GZ_INLINED {
      for (std::int64_t d = first; d < last; ++d) body(d, scratch.data());
    });
  });
}

// An edge as it is found from its source.
struct OutEdge {
  std::uint32_t dst, edge;
};

// Out-edges of a run of sources: those of source s from ends[s - first - 1] (or 0) to before
// ends[s - first], in the order in which they stand in the batch.
struct OutEdges {
  std::int64_t first, last;  // sources
  const std::uint32_t* ends;
  const OutEdge* edges;
  std::int64_t count;  // of these

  // The destination of an edge that is asked for ahead of edge `i`; -1: there is none.
  std::int64_t ahead(std::int64_t i) const noexcept {
    return i + kEdgesAhead < count ? edges[i + kEdgesAhead].dst : -1;
  }
};

// Edges by source. They are dealt to runs of sources first and ordered within these after that,
// both by several threads none of which writes where another does.
class EdgesBySource {
 public:
  // Raises std::invalid_argument where there are 2^32 destinations, sources or edges, or more.
  explicit EdgesBySource(const GroupedEdges& edges);

  // Calls body(source, out_edges, begin, end, scratch) for every source, whose edges are numbers
  // begin … end - 1 of these, on several threads, with `size` numbers to work in. REQUIRES as
  // run_widest().
  template <class S, class Body>
  void each_source(std::int64_t size, const Body& body) const {
    parallel_for(num_runs_, 1, threads_, [&](std::int64_t first, std::int64_t last) {
      Buffer<std::uint32_t> ends;
      Buffer<OutEdge> order;
      std::vector<S> scratch(static_cast<std::size_t>(size));
      for (std::int64_t number = first; number < last; ++number) {
        const OutEdges run = sort_run(number, ends, order);
        run_widest([&]() GZ_INLINED {
          std::int64_t begin = 0;
          for (std::int64_t source = run.first; source < run.last; ++source) {
            const std::int64_t end = run.ends[source - run.first];
            body(source, run, begin, end, scratch.data());
            begin = end;
          }
        });
      }
    });
  }

 private:
  struct Edge {
    std::uint32_t src;  // within its run
    OutEdge out;
  };
  OutEdges sort_run(std::int64_t run, Buffer<std::uint32_t>& ends, Buffer<OutEdge>& order) const;

  std::int64_t num_src_, num_runs_;
  int run_bits_ = 0;  // a run has 2^run_bits_ sources
  int threads_;
  Buffer<Edge> edges_;
  std::vector<std::int64_t> begins_;  // of each run, among edges_
};

}  // namespace gz
