#include "aggregate/edges.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <limits>
#include <ranges>
#include <stdexcept>

#include "base/chunk_sizes.h"
#include "base/errors.h"

namespace gz {
namespace {

constexpr std::int64_t kCheckGrain = 1 << 15;
constexpr std::int64_t kMaxRuns = 512;
constexpr std::int64_t kMaxSlices = 256;

// Some i of [0, n) for which is_bad(i), or -1; which one is of no matter.
template <class IsBad>
std::int64_t find_bad(std::int64_t n, int threads, const IsBad& is_bad) {
  std::atomic<std::int64_t> found{-1};
  parallel_for(n, kCheckGrain, threads, [&](std::int64_t begin, std::int64_t end) {
    bool is_any = false;
    for (std::int64_t i = begin; i < end; ++i) is_any |= is_bad(i);
    for (std::int64_t i = begin; is_any && i < end; ++i) {
      if (is_bad(i)) return found.store(i, std::memory_order_relaxed);
    }
  });
  return found.load(std::memory_order_relaxed);
}

// A destination counts as an edge: there may be many without any.
std::int64_t work_of(const GroupedEdges& edges) {
  return edges.bounds.back() - edges.bounds.front() + edges.num_dst();
}

}  // namespace

void check_bounds(const GroupedEdges& edges) {
  if (edges.bounds.empty()) {
    throw invalid("bounds: found none, expected one more than destinations");
  }
  const std::int64_t* const bounds = edges.bounds.data();
  const std::int64_t num_dst = edges.num_dst(), num_edges = std::ssize(edges.src);
  const std::int64_t falls =
      find_bad(num_dst, edges.threads, [=](std::int64_t d) { return bounds[d] > bounds[d + 1]; });
  if (falls >= 0) {
    throw invalid("bounds[", falls + 1, "]: found ", bounds[falls + 1], " after ", bounds[falls],
                  ", expected ascending numbers");
  }
  if (bounds[0] < 0 || bounds[num_dst] > num_edges) {
    throw invalid("bounds: found ", bounds[0], " to ", bounds[num_dst],
                  ", expected numbers from 0 to the ", num_edges, " edges of src");
  }
}

void check_edges(const GroupedEdges& edges) {
  check_bounds(edges);
  const std::span<const std::int64_t> bounds = edges.bounds;
  const std::int64_t* const src = edges.src.data() + bounds.front();
  const auto num_src = static_cast<std::uint64_t>(edges.num_src);
  const std::int64_t out =
      find_bad(bounds.back() - bounds.front(), edges.threads,
               [=](std::int64_t e) { return static_cast<std::uint64_t>(src[e]) >= num_src; });
  if (out >= 0) {
    throw std::out_of_range(text_of("src[", bounds.front() + out, "]: found ", src[out],
                                    ", expected a row of the ", edges.num_src, " of x"));
  }
}

EdgePieces::EdgePieces(const GroupedEdges& edges, std::int64_t piece_edges)
    : bounds_(edges.bounds), size_(std::max<std::int64_t>(piece_edges, 1)) {
  count_ = (work_of(edges) + size_ - 1) / size_;
}

EdgePieces EdgePieces::in_parts(const GroupedEdges& edges, std::int64_t parts) {
  return {edges, (work_of(edges) + parts - 1) / parts};
}

std::int64_t EdgePieces::first(std::int64_t piece) const noexcept {
  const auto is_before = [&](std::size_t d) {
    return bounds_[d] - bounds_.front() + static_cast<std::int64_t>(d) < piece * size_;
  };
  const auto destinations = std::views::iota(std::size_t{0}, bounds_.size() - 1);
  return static_cast<std::int64_t>(*std::ranges::partition_point(destinations, is_before));
}

void for_destinations(const GroupedEdges& edges, RangeBody body) {
  const EdgePieces pieces(edges, chunk_sizes.aggregated_edges);
  parallel_for(pieces.count(), 1, edges.threads, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t first = pieces.first(begin), last = pieces.first(end);
    if (first < last) body(first, last);
  });
}

EdgesBySource::EdgesBySource(const GroupedEdges& edges)
    : num_src_(edges.num_src), threads_(edges.threads) {
  const std::int64_t* const src = edges.src.data();
  const std::int64_t* const bounds = edges.bounds.data();
  const std::int64_t num_edges = edges.bounds.back() - bounds[0];
  if (std::max({num_src_, edges.num_dst(), std::int64_t{std::ssize(edges.src)}}) >
      std::numeric_limits<std::uint32_t>::max()) {
    throw invalid("x, src, bounds: expected less than 2^32 rows, edges, destinations");
  }
  const std::int64_t wanted =
      std::clamp<std::int64_t>(num_edges / chunk_sizes.ordered_edges, 1, kMaxRuns);
  while ((num_src_ >> run_bits_) > wanted) ++run_bits_;
  num_runs_ = (num_src_ >> run_bits_) + 1;

  const EdgePieces slices(edges, std::max(chunk_sizes.ordered_edges, work_of(edges) / kMaxSlices));
  // Number of edges of each slice and run, then the place of its next one.
  std::vector<std::int64_t> places(static_cast<std::size_t>(slices.count() * num_runs_));
  const auto for_slices = [&](const auto& visit) {
    parallel_for(slices.count(), 1, threads_, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t slice = begin; slice < end; ++slice) {
        const std::int64_t last = slices.first(slice + 1);
        std::int64_t* const place = places.data() + slice * num_runs_;
        for (std::int64_t d = slices.first(slice); d < last; ++d) {
          for (std::int64_t e = bounds[d]; e < bounds[d + 1]; ++e) {
            visit(src[e], d, e, place[src[e] >> run_bits_]);
          }
        }
      }
    });
  };
  for_slices([](std::int64_t, std::int64_t, std::int64_t, std::int64_t& count) { ++count; });
  std::int64_t sum = 0;
  for (std::int64_t run = 0; run < num_runs_; ++run) {
    begins_.push_back(sum);
    for (std::int64_t slice = 0; slice < slices.count(); ++slice) {
      std::int64_t& place = places[static_cast<std::size_t>(slice * num_runs_ + run)];
      sum += std::exchange(place, sum);
    }
  }
  begins_.push_back(sum);
  edges_.resize(sum);
  const std::int64_t mask = (std::int64_t{1} << run_bits_) - 1;
  for_slices([&](std::int64_t source, std::int64_t d, std::int64_t e, std::int64_t& place) {
    edges_[place++] = {static_cast<std::uint32_t>(source & mask),
                       {static_cast<std::uint32_t>(d), static_cast<std::uint32_t>(e)}};
  });
}

OutEdges EdgesBySource::sort_run(std::int64_t run, Buffer<std::uint32_t>& ends,
                                 Buffer<OutEdge>& order) const {
  const std::int64_t first = run << run_bits_;
  const std::int64_t last = std::min(num_src_, (run + 1) << run_bits_);
  const Edge* const begin = edges_.data() + begins_[static_cast<std::size_t>(run)];
  const Edge* const end = edges_.data() + begins_[static_cast<std::size_t>(run) + 1];
  ends.resize(last - first);
  order.resize(end - begin);
  std::fill_n(ends.data(), last - first, 0);
  for (const Edge* edge = begin; edge < end; ++edge) ++ends[edge->src];
  std::uint32_t sum = 0;
  for (std::int64_t i = 0; i < last - first; ++i) sum += std::exchange(ends[i], sum);
  for (const Edge* edge = begin; edge < end; ++edge) order[ends[edge->src]++] = edge->out;
  return {first, last, ends.data(), order.data(), order.size()};
}

}  // namespace gz
