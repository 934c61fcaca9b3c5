#include "sampling/graph.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "io/fault_guard.h"

namespace gz {

Csc csc_of(std::shared_ptr<const Topology> file, std::shared_ptr<PagedRows> paged,
           std::shared_ptr<const PackedBounds> bounds, std::shared_ptr<const PackedInts> packed) {
  const auto num_edges = static_cast<std::int64_t>(file->num_edges());
  if (paged != nullptr &&
      (paged->num_rows() != num_edges || paged->row_bytes() != std::int64_t{file->index_bytes()})) {
    throw invalid(file->path(), ": paged: found ", paged->num_rows(), " rows of ",
                  paged->row_bytes(), " bytes, expected ", num_edges, " of ", file->index_bytes());
  }
  if (bounds != nullptr && bounds->num_nodes() != static_cast<std::int64_t>(file->num_dst())) {
    throw invalid(file->path(), ": bounds: found those of ", bounds->num_nodes(),
                  " nodes, expected ", file->num_dst());
  }
  if (packed != nullptr && packed->size() != num_edges) {
    throw invalid(file->path(), ": packed: found the neighbours of ", packed->size(),
                  " edges, expected ", num_edges);
  }
  return {file->indptr(),
          paged != nullptr || file->index_bytes() == 0 ? nullptr : file->indices(),
          file->index_bytes(),
          static_cast<std::int64_t>(file->num_src()),
          static_cast<std::int64_t>(file->num_dst()),
          num_edges,
          file->path(),
          file,
          nullptr,
          std::move(paged),
          std::move(bounds),
          std::move(packed)};
}

void SampledGraph::check() const {
  const auto types = static_cast<int>(num_nodes.size());
  for (const SampledEdgeType& type : edge_types) {
    if (type.src_type < 0 || type.src_type >= types || type.dst_type < 0 ||
        type.dst_type >= types) {
      throw invalid(type.csc.name, ": its node types are not among the ", types, " given");
    }
    const std::int64_t src = num_nodes[static_cast<std::size_t>(type.src_type)];
    const std::int64_t dst = num_nodes[static_cast<std::size_t>(type.dst_type)];
    if (type.csc.num_src != src || type.csc.num_dst != dst) {
      throw FormatError(type.csc.name, "num_src, num_dst",
                        text_of(type.csc.num_src, ", ", type.csc.num_dst), src, ", ", dst,
                        " (the sizes of its node types)");
    }
  }
}

void SampledGraph::check_files() const {
  renew_guard();
  for (const SampledEdgeType& type : edge_types) {
    if (type.csc.file != nullptr && !type.csc.is_asked()) type.csc.file->check_size();
  }
}

bool SampledGraph::is_asked() const noexcept {
  return std::any_of(edge_types.begin(), edge_types.end(),
                     [](const SampledEdgeType& type) { return type.csc.is_asked(); });
}

void SampledGraph::check_node_type(int type) const {
  if (type >= 0 && static_cast<std::size_t>(type) < num_nodes.size()) return;
  throw invalid("seeds: found node type ", type, ", expected 0 <= type < ", num_nodes.size());
}

void need_neighbors(const Csc& csc) {
  if (!csc.is_elsewhere()) return;
  throw invalid(csc.name,
                ": found neighbours in shards, expected all of them here: only "
                "batches of neighbours over gz.open_shards() have those of others");
}

void check_seed(std::size_t i, std::int64_t node, std::int64_t num_nodes) {
  if (node >= 0 && node < num_nodes) return;
  throw_out_of_range(text_of("seed ", i), "node", node, num_nodes);
}

std::size_t check_hops(const std::string& name,
                       const std::vector<std::vector<std::int64_t>>& counts,
                       const std::string& type, std::size_t num_types, std::int64_t least) {
  if (counts.size() != num_types) {
    throw invalid(name, ": found ", counts.size(), " lists, expected one per ", type, " (",
                  num_types, ")");
  }
  for (const auto& hops : counts) {
    if (hops.size() != counts.front().size()) {
      throw invalid(name, ": ", type, "s differ in their number of hops");
    }
    const auto bad = std::ranges::find_if(hops, [=](std::int64_t k) { return k < least; });
    if (bad != hops.end()) throw invalid(name, ": found ", *bad, ", expected ", least, " or more");
  }
  return counts.empty() ? 0 : counts.front().size();
}

void throw_too_many() {
  throw invalid("one batch would hold 2^32 nodes or more: lower the fan-out or the batch size");
}

void throw_bad_indptr(const Csc& csc, std::int64_t node) {
  throw FormatError(csc.name, text_of("indptr[", node, "]"), "a range outside the edges",
                    "0 <= indptr[v] <= indptr[v + 1] <= ", csc.num_edges,
                    "; run `graphzero verify` on the store");
}

void throw_bad_index(const std::string& name, std::int64_t num_src, std::int64_t node) {
  throw FormatError(name, "indices", text_of("node ", node), "0 <= node < ", num_src,
                    "; run `graphzero verify` on the store");
}

}  // namespace gz
