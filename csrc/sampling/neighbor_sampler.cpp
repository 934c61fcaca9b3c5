#include "sampling/neighbor_sampler.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <stdexcept>
#include <utility>

#include "base/errors.h"
#include "base/parallel.h"
#include "io/fault_guard.h"
#include "sampling/id_map.h"
#include "sampling/rng.h"
#include "sampling/subset.h"

namespace gz {
namespace {

constexpr std::int64_t kPrefetchAhead = 24;
constexpr std::int64_t kFrontierGrain = 2048;

// Node types above this need 64-bit keys; the highest 32-bit value marks an empty slot.
constexpr std::int64_t kNarrowNodes = std::numeric_limits<std::uint32_t>::max();

}  // namespace

struct NeighborSampler::Workspace {
  struct NodeIds {
    IdMap<std::uint32_t> narrow;
    IdMap<std::uint64_t> wide;
  };
  std::vector<NodeIds> ids;
  Buffer<std::int64_t> first;   // [frontier]: where a node's neighbours start
  Buffer<std::int64_t> degree;  // [frontier]
  Buffer<std::int64_t> offset;  // [frontier + 1]: where its drawn edges go
};

// One call of sample(): the request, what has been sampled, and the hop that is being expanded.
class NeighborSampler::Run {
 public:
  Run(const NeighborSampler& sampler, const SampleRequest& request, Workspace& workspace)
      : sampler_(sampler), request_(request), workspace_(workspace) {
    const std::size_t num_node_types = sampler.num_nodes_.size();
    const std::size_t num_edge_types = sampler.edge_types_.size();
    out_.nodes.resize(num_node_types);
    out_.edges.resize(num_edge_types);
    out_.num_sampled_nodes.resize(num_node_types);
    out_.num_sampled_edges.resize(num_edge_types);
    for (std::size_t t = 0; t < num_node_types; ++t) {
      if (narrow(t)) {
        workspace_.ids[t].narrow.clear();
      } else {
        workspace_.ids[t].wide.clear();
      }
    }
  }

  Sample run() {
    for (const Seeds& seeds : request_.seeds) add_seeds(seeds);
    std::vector<std::int64_t> begin(out_.nodes.size(), 0);
    std::vector<std::int64_t> end(out_.nodes.size());
    for (std::size_t t = 0; t < end.size(); ++t) {
      end[t] = out_.nodes[t].size();
      out_.num_sampled_nodes[t].push_back(end[t]);
    }
    const std::size_t hops =
        request_.num_neighbors.empty() ? 0 : request_.num_neighbors.front().size();
    for (std::size_t hop = 0; hop < hops; ++hop) {
      for (std::size_t e = 0; e < sampler_.edge_types_.size(); ++e) {
        const auto dst = static_cast<std::size_t>(sampler_.edge_types_[e].dst_type);
        const std::int64_t before = out_.edges[e].row.size();
        expand(e, hop, begin[dst], end[dst]);
        out_.num_sampled_edges[e].push_back(out_.edges[e].row.size() - before);
      }
      for (std::size_t t = 0; t < end.size(); ++t) {
        begin[t] = std::exchange(end[t], out_.nodes[t].size());
        out_.num_sampled_nodes[t].push_back(end[t] - begin[t]);
      }
    }
    return std::move(out_);
  }

 private:
  bool narrow(std::size_t node_type) const { return sampler_.num_nodes_[node_type] < kNarrowNodes; }

  void add_seeds(const Seeds& seeds) {
    const auto type = static_cast<std::size_t>(seeds.node_type);
    const std::int64_t num_nodes = sampler_.num_nodes_[type];
    Buffer<std::int64_t>& nodes = out_.nodes[type];
    Workspace::NodeIds& ids = workspace_.ids[type];
    for (std::size_t i = 0; i < seeds.nodes.size(); ++i) {
      const std::int64_t node = seeds.nodes[i];
      if (node < 0 || node >= num_nodes) {
        throw std::out_of_range("seed " + std::to_string(i) + ": found node " +
                                std::to_string(node) + ", expected 0 <= node < " +
                                std::to_string(num_nodes));
      }
      const auto at = static_cast<std::uint32_t>(nodes.size());
      if (narrow(type)) {
        ids.narrow.find_or_insert(static_cast<std::uint32_t>(node), at);
      } else {
        ids.wide.find_or_insert(static_cast<std::uint64_t>(node), at);
      }
      nodes.push_back(node);
    }
  }

  void expand(std::size_t e, std::size_t hop, std::int64_t begin, std::int64_t end) {
    const SampledEdgeType& type = sampler_.edge_types_[e];
    const std::int64_t k = request_.num_neighbors[e][hop];
    if (begin == end || k == 0 || type.csc.num_edges == 0) return;
    const std::int64_t total = look_up_degrees(
        type.csc, out_.nodes[static_cast<std::size_t>(type.dst_type)].data() + begin, end - begin,
        k);
    const auto src = static_cast<std::size_t>(type.src_type);
    // Positions are 32-bit, and each edge may bring a new node.
    if (total >= std::numeric_limits<std::uint32_t>::max() - out_.nodes[src].size()) {
      throw_too_many();
    }
    Sample::Edges& edges = out_.edges[e];
    const std::int64_t base = edges.row.size();
    edges.row.resize(base + total);
    edges.col.resize(base + total);
    edges.slot.resize(base + total);
    const std::uint64_t key = derive_key(derive_key(request_.key, hop), e);
    if (type.csc.index_bytes == 4) {
      draw_and_fetch<std::uint32_t>(type.csc, edges, base, begin, end - begin, k, key);
    } else {
      draw_and_fetch<std::int64_t>(type.csc, edges, base, begin, end - begin, k, key);
    }
    if (narrow(src)) {
      relabel(type.csc, workspace_.ids[src].narrow, out_.nodes[src], edges.row, base);
    } else {
      relabel(type.csc, workspace_.ids[src].wide, out_.nodes[src], edges.row, base);
    }
  }

  // Fills first, degree and offset for the frontier; returns how many edges it draws in all.
  std::int64_t look_up_degrees(const Csc& csc, const std::int64_t* frontier, std::int64_t count,
                               std::int64_t k) {
    workspace_.first.resize(count);
    workspace_.degree.resize(count);
    workspace_.offset.resize(count + 1);
    std::int64_t* const first = workspace_.first.data();
    std::int64_t* const degree = workspace_.degree.data();
    std::int64_t* const offset = workspace_.offset.data();
    std::atomic<std::int64_t> bad{-1};
    parallel_for(count, kFrontierGrain, request_.threads, [&](std::int64_t from, std::int64_t to) {
      guarded([&] {
        for (std::int64_t i = from; i < to; ++i) {
          if (i + kPrefetchAhead < to) {
            __builtin_prefetch(csc.indptr + frontier[i + kPrefetchAhead]);
          }
          const std::int64_t node = frontier[i];
          const std::int64_t start = csc.indptr[node];
          const std::int64_t stop = csc.indptr[node + 1];
          // A damaged indptr must not send the sampler out of its arrays.
          if (start < 0 || stop < start || stop > csc.num_edges) {
            bad.store(node, std::memory_order_relaxed);
            return;
          }
          const std::int64_t n = stop - start;
          first[i] = start;
          degree[i] = n;
          offset[i + 1] = k < 0 ? n : request_.replace ? (n > 0 ? k : 0) : std::min(n, k);
        }
      });
    });
    if (const std::int64_t node = bad.load(); node >= 0) throw_bad_indptr(csc, node);
    offset[0] = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      if (__builtin_add_overflow(offset[i + 1], offset[i], &offset[i + 1])) throw_too_many();
    }
    return offset[count];
  }

  // Chooses slots and reads the neighbours in them; row holds global ids until relabel().
  template <class Index>
  void draw_and_fetch(const Csc& csc, Sample::Edges& edges, std::int64_t base,
                      std::int64_t frontier_begin, std::int64_t count, std::int64_t k,
                      std::uint64_t key) {
    const auto* const indices = static_cast<const Index*>(csc.indices);
    const std::int64_t* const offset = workspace_.offset.data();
    parallel_for(count, kFrontierGrain, request_.threads, [&](std::int64_t from, std::int64_t to) {
      SubsetSampler subset;
      std::int64_t* const slot = edges.slot.data() + base;
      std::int64_t* const col = edges.col.data() + base;
      std::int64_t* const row = edges.row.data() + base;
      for (std::int64_t i = from; i < to; ++i) {
        const std::int64_t at = offset[i];
        const std::int64_t drawn = offset[i + 1] - at;
        const std::int64_t first = workspace_.first[i];
        const std::int64_t degree = workspace_.degree[i];
        std::fill_n(col + at, drawn, frontier_begin + i);
        if (k >= 0 && request_.replace) {
          CounterRng rng(key, static_cast<std::uint64_t>(i));
          for (std::int64_t j = 0; j < drawn; ++j) {
            slot[at + j] =
                first + static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(degree)));
          }
        } else if (drawn == degree) {
          for (std::int64_t j = 0; j < drawn; ++j) slot[at + j] = first + j;
        } else {
          CounterRng rng(key, static_cast<std::uint64_t>(i));
          subset.draw(rng, degree, drawn, first, slot + at);
        }
      }
      guarded([&] {
        const std::int64_t last = offset[to];
        for (std::int64_t j = offset[from]; j < last; ++j) {
          if (j + kPrefetchAhead < last) __builtin_prefetch(indices + slot[j + kPrefetchAhead]);
          row[j] = static_cast<std::int64_t>(indices[slot[j]]);
        }
      });
    });
  }

  // Global ids to batch positions, in edge order, appending nodes seen for the first time.
  template <class Key>
  void relabel(const Csc& csc, IdMap<Key>& ids, Buffer<std::int64_t>& nodes,
               Buffer<std::int64_t>& row, std::int64_t base) {
    const std::int64_t last = row.size();
    std::int64_t fresh = nodes.size();
    nodes.resize(fresh + (last - base));
    for (std::int64_t j = base; j < last; ++j) {
      if (j + kPrefetchAhead < last) ids.prefetch(static_cast<Key>(row[j + kPrefetchAhead]));
      const std::int64_t node = row[j];
      if (static_cast<std::uint64_t>(node) >= static_cast<std::uint64_t>(csc.num_src)) {
        throw_bad_index(csc, node);
      }
      const std::uint32_t at =
          ids.find_or_insert(static_cast<Key>(node), static_cast<std::uint32_t>(fresh));
      row[j] = at;
      nodes[fresh] = node;
      fresh += at == fresh;
    }
    nodes.resize(fresh);
  }

  [[noreturn]] static void throw_too_many() {
    throw std::invalid_argument(
        "one batch would hold 2^32 nodes or more: lower the fan-out or the "
        "batch size");
  }

  [[noreturn]] static void throw_bad_indptr(const Csc& csc, std::int64_t node) {
    throw FormatError(csc.name, "indptr[" + std::to_string(node) + "]", "a range outside the edges",
                      "0 <= indptr[v] <= indptr[v + 1] <= " + std::to_string(csc.num_edges) +
                          "; run `graphzero verify` on the store");
  }

  [[noreturn]] static void throw_bad_index(const Csc& csc, std::int64_t node) {
    throw FormatError(
        csc.name, "indices", "node " + std::to_string(node),
        "0 <= node < " + std::to_string(csc.num_src) + "; run `graphzero verify` on the store");
  }

  const NeighborSampler& sampler_;
  const SampleRequest& request_;
  Workspace& workspace_;
  Sample out_;
};

NeighborSampler::NeighborSampler(std::vector<std::int64_t> num_nodes,
                                 std::vector<SampledEdgeType> edge_types)
    : num_nodes_(std::move(num_nodes)), edge_types_(std::move(edge_types)) {
  const auto types = static_cast<int>(num_nodes_.size());
  for (const SampledEdgeType& type : edge_types_) {
    if (type.src_type < 0 || type.src_type >= types || type.dst_type < 0 ||
        type.dst_type >= types) {
      throw std::invalid_argument(type.csc.name + ": its node types are not among the " +
                                  std::to_string(types) + " given");
    }
    const std::int64_t src = num_nodes_[static_cast<std::size_t>(type.src_type)];
    const std::int64_t dst = num_nodes_[static_cast<std::size_t>(type.dst_type)];
    if (type.csc.num_src != src || type.csc.num_dst != dst) {
      throw FormatError(
          type.csc.name, "num_src, num_dst",
          std::to_string(type.csc.num_src) + ", " + std::to_string(type.csc.num_dst),
          std::to_string(src) + ", " + std::to_string(dst) + " (the sizes of its node types)");
    }
  }
}

NeighborSampler::~NeighborSampler() = default;

Sample NeighborSampler::sample(const SampleRequest& request) const {
  if (request.num_neighbors.size() != edge_types_.size()) {
    throw std::invalid_argument(
        "num_neighbors: found " + std::to_string(request.num_neighbors.size()) +
        " lists, expected one per edge type (" + std::to_string(edge_types_.size()) + ")");
  }
  for (const auto& hops : request.num_neighbors) {
    if (hops.size() != request.num_neighbors.front().size()) {
      throw std::invalid_argument("num_neighbors: edge types differ in their number of hops");
    }
    for (const std::int64_t k : hops) {
      if (k < -1) {
        throw std::invalid_argument("num_neighbors: found " + std::to_string(k) +
                                    ", expected a count, 0, or -1 for all neighbors");
      }
    }
  }
  for (const Seeds& seeds : request.seeds) {
    if (seeds.node_type < 0 || static_cast<std::size_t>(seeds.node_type) >= num_nodes_.size()) {
      throw std::invalid_argument("seeds: found node type " + std::to_string(seeds.node_type) +
                                  ", expected 0 <= type < " + std::to_string(num_nodes_.size()));
    }
  }
  // Cheap against a batch, and a better message than the fault that would follow.
  for (const SampledEdgeType& type : edge_types_) {
    if (type.csc.file != nullptr) type.csc.file->check_size();
  }
  // A workspace that an error interrupts is dropped, not reused.
  std::unique_ptr<Workspace> workspace = borrow();
  Sample sample = Run(*this, request, *workspace).run();
  give_back(std::move(workspace));
  return sample;
}

std::unique_ptr<NeighborSampler::Workspace> NeighborSampler::borrow() const {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Workspace> workspace = std::move(idle_.back());
      idle_.pop_back();
      return workspace;
    }
  }
  auto workspace = std::make_unique<Workspace>();
  workspace->ids.resize(num_nodes_.size());
  return workspace;
}

void NeighborSampler::give_back(std::unique_ptr<Workspace> workspace) const {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(workspace));
}

}  // namespace gz
