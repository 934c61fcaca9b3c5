#include "sampling/reach.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "io/fault_guard.h"

namespace gz {
namespace {

// Far enough for a word of the bits to come from memory meanwhile.
constexpr std::int64_t kPrefetchAhead = 16;

// Sets the bits of sources in slots [begin, end) of a type and counts the new ones. Raises
// FormatError for a source that is no node.
void add_sources(const Csc& csc, std::int64_t begin, std::int64_t end, ReachedRows& rows) {
  std::uint64_t* const words = rows.words.data();
  const auto num_src = static_cast<std::uint64_t>(csc.num_src);
  std::int64_t added = 0, bad = 0;
  bool is_bad = false;
  guarded([&] {
    for (std::int64_t slot = begin; slot < end; ++slot) {
      if (slot + kPrefetchAhead < end) {
        const auto ahead = static_cast<std::uint64_t>(csc.source(slot + kPrefetchAhead));
        if (ahead < num_src) __builtin_prefetch(words + ahead / 64, 1);
      }
      const auto source = static_cast<std::uint64_t>(csc.source(slot));
      if (source >= num_src) {
        bad = static_cast<std::int64_t>(source);
        is_bad = true;
        return;
      }
      const std::uint64_t bit = std::uint64_t{1} << (source % 64);
      added += (words[source / 64] & bit) == 0;
      words[source / 64] |= bit;
    }
  });
  if (is_bad) throw_bad_index(csc, bad);
  rows.count += added;
}

void add_range(ReachedRows& rows, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    std::uint64_t& word = rows.words[static_cast<std::size_t>(row / 64)];
    const std::uint64_t bit = std::uint64_t{1} << (row % 64);
    rows.count += (word & bit) == 0;
    word |= bit;
  }
}

// Where the in-edges of rows [begin, end) lie.
std::pair<std::int64_t, std::int64_t> slots_of(const Csc& csc, std::int64_t begin,
                                               std::int64_t end) {
  std::int64_t first = 0;
  std::int64_t last = 0;
  guarded([&] {
    first = csc.indptr[begin];
    last = csc.indptr[end];
  });
  if (first < 0 || first > last || last > csc.num_edges) throw_bad_indptr(csc, begin);
  return {first, last};
}

}  // namespace

Reach reach(const std::vector<std::int64_t>& num_nodes,
            const std::vector<SampledEdgeType>& edge_types, int dst_type,
            std::span<const std::int64_t> bounds, std::int64_t first, const ReachLimits& limits) {
  check_edge_types(num_nodes, edge_types);
  check_seed_type(dst_type, num_nodes.size());
  check_files(edge_types);
  const std::int64_t num_batches = std::ssize(bounds) - 1;
  const auto dst = static_cast<std::size_t>(dst_type);
  if (limits.row_bytes.size() != num_nodes.size() || is_asked(edge_types) ||
      limits.edge_bytes.size() != edge_types.size() || first < 0 || first >= num_batches ||
      !std::is_sorted(bounds.begin(), bounds.end()) || bounds.front() < 0 ||
      bounds.back() > num_nodes[dst]) {
    throw std::invalid_argument(
        "reach: expected bounds that ascend, batch `first` among them, a size for each node type "
        "and edge type, and edge types in memory or mapped");
  }
  Reach found;
  for (const std::int64_t nodes : num_nodes) {
    found.rows.push_back(
        {nodes, std::vector<std::uint64_t>(static_cast<std::size_t>(nodes + 63) / 64)});
  }
  std::int64_t bytes_of_edges = 0;
  const auto bytes = [&] {
    std::int64_t sum = bytes_of_edges;
    for (std::size_t t = 0; t < found.rows.size(); ++t) {
      sum += limits.row_bytes[t] * found.rows[t].count;
    }
    return sum;
  };
  std::vector<std::int64_t> mapped(edge_types.size());
  std::vector<SlotsAhead> ahead;
  for (const SampledEdgeType& type : edge_types) ahead.emplace_back(type.csc);
  for (std::int64_t i = first; i < num_batches; ++i) {
    const std::int64_t begin = bounds[static_cast<std::size_t>(i)];
    const std::int64_t end = bounds[static_cast<std::size_t>(i) + 1];
    // Bytes that it takes if none of its rows is there yet.
    std::int64_t most = (end - begin) * limits.row_bytes[dst];
    std::int64_t own_edges = 0;
    for (std::size_t t = 0; t < edge_types.size(); ++t) {
      const SampledEdgeType& type = edge_types[t];
      if (type.dst_type != dst_type) continue;
      const auto [slot, last] = slots_of(type.csc, begin, end);
      most += (last - slot) * limits.row_bytes[static_cast<std::size_t>(type.src_type)];
      own_edges += (last - slot) * limits.edge_bytes[t];
    }
    if (i > first && bytes() + most + own_edges > limits.max_bytes) break;
    bytes_of_edges += own_edges;
    add_range(found.rows[dst], begin, end);
    for (std::size_t t = 0; t < edge_types.size(); ++t) {
      const SampledEdgeType& type = edge_types[t];
      if (type.dst_type != dst_type) continue;
      const auto [slot, last] = slots_of(type.csc, begin, end);
      ReachedRows& rows = found.rows[static_cast<std::size_t>(type.src_type)];
      ahead[t].at(slot);
      add_sources(type.csc, slot, last, rows);
      mapped[t] += (last - slot) * type.csc.index_bytes + (end - begin) * 8;
      if (mapped[t] > limits.max_mapped && type.csc.file != nullptr) {
        type.csc.file->forget_pages();
        mapped[t] = 0;
      }
    }
    found.stop = i + 1;
  }
  return found;
}

}  // namespace gz
