#include "sampling/reach.h"

#include <algorithm>
#include <atomic>

#include "base/errors.h"
#include "sampling/read_csc.h"

namespace gz {

Reach reach(const SampledGraph& graph, int dst_type, std::span<const std::int64_t> bounds,
            std::int64_t first, const ReachLimits& limits) {
  const auto& [num_nodes, edge_types] = graph;
  graph.check();
  graph.check_node_type(dst_type);
  graph.check_files();
  const std::int64_t num_batches = std::ssize(bounds) - 1;
  const auto dst = static_cast<std::size_t>(dst_type);
  if (limits.row_bytes.size() != num_nodes.size() || graph.is_asked() ||
      limits.edge_bytes.size() != edge_types.size() || first < 0 || first >= num_batches ||
      !std::is_sorted(bounds.begin(), bounds.end()) || bounds.front() < 0 ||
      bounds.back() > num_nodes[dst]) {
    throw invalid(
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
  std::vector<std::atomic<std::int64_t>> mapped(edge_types.size());
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
      const auto [slot, last] = check_lists(type.csc, begin, end);
      most += (last - slot) * limits.row_bytes[static_cast<std::size_t>(type.src_type)];
      own_edges += (last - slot) * limits.edge_bytes[t];
    }
    if (i > first && bytes() + most + own_edges > limits.max_bytes) break;
    bytes_of_edges += own_edges;
    for (std::int64_t row = begin; row < end; ++row) found.rows[dst].add(row);
    for (std::size_t t = 0; t < edge_types.size(); ++t) {
      const SampledEdgeType& type = edge_types[t];
      if (type.dst_type != dst_type) continue;
      ReachedRows& rows = found.rows[static_cast<std::size_t>(type.src_type)];
      sweep(type.csc, begin, end, ahead[t], mapped[t], limits.max_mapped,
            [&](auto, std::int64_t source, auto) { rows.add(source); });
    }
    found.stop = i + 1;
  }
  return found;
}

}  // namespace gz
