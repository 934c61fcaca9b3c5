#include "sampling/reach.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "sampling/read_csc.h"

namespace gz {
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
    found.rows.push_back(std::make_shared<RankedBits>(nodes));
  }
  std::int64_t bytes = 0;  // of rows and edges
  // Adds a row, and its bytes where it is new.
  const auto add = [](RankedBits& rows, std::int64_t row, std::int64_t row_bytes,
                      std::int64_t& sum) {
    sum += rows.has(row) ? 0 : row_bytes;
    rows.set(row);
  };
  std::vector<std::pair<std::int64_t, std::int64_t>> slots(edge_types.size());  // of a batch
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
      const auto [slot, last] = slots[t] = check_lists(type.csc, begin, end);
      most += (last - slot) * limits.row_bytes[static_cast<std::size_t>(type.src_type)];
      own_edges += (last - slot) * limits.edge_bytes[t];
    }
    if (i > first && bytes + most + own_edges > limits.max_bytes) break;
    bytes += own_edges;
    for (std::int64_t row = begin; row < end; ++row) {
      add(*found.rows[dst], row, limits.row_bytes[dst], bytes);
    }
    for (std::size_t t = 0; t < edge_types.size(); ++t) {
      const SampledEdgeType& type = edge_types[t];
      if (type.dst_type != dst_type) continue;
      const auto [slot, last] = slots[t];
      const auto src = static_cast<std::size_t>(type.src_type);
      RankedBits& rows = *found.rows[src];
      const std::int64_t row_bytes = limits.row_bytes[src];
      ahead[t].at(slot);
      visit_edges(type.csc, begin, end, [&](std::int64_t, std::int64_t source, std::int64_t) {
        add(rows, source, row_bytes, bytes);
      });
      mapped[t] += (last - slot) * type.csc.index_bytes + (end - begin) * 8;
      if (mapped[t] > limits.max_mapped && type.csc.file != nullptr) {
        type.csc.file->forget_pages();
        mapped[t] = 0;
      }
    }
    found.stop = i + 1;
  }
  for (const auto& rows : found.rows) rows->rank();
  return found;
}

}  // namespace gz
