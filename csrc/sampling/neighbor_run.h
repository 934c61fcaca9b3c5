// One batch of the neighbour sampler, on its way from seeds to a sample; for neighbor_sampler.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "arrays/id_map.h"
#include "arrays/narrow_ids.h"
#include "base/chunk_sizes.h"
#include "base/rng.h"
#include "sampling/draw.h"
#include "sampling/excluded_edges.h"
#include "sampling/induce.h"
#include "sampling/labor.h"
#include "sampling/neighbor_sampler.h"
#include "sampling/read_csc.h"

namespace gz {

struct NeighborSampler::Workspace {
  struct NodeIds {
    IdMap<std::uint32_t> narrow;
    IdMap<std::uint64_t> wide;
  };
  std::vector<NodeIds> ids;  // [node type]
};

// One batch: the request, what has been sampled, and the hop that is being expanded.
class NeighborSampler::Run {
 public:
  Run(const SampledGraph& graph, const SampleRequest& request, Workspace& workspace)
      : graph_(graph), request_(request), workspace_(workspace) {
    const std::size_t num_node_types = graph_.num_nodes.size();
    const std::size_t num_edge_types = graph_.edge_types.size();
    begin_.resize(num_node_types);
    end_.resize(num_node_types);
    base_.resize(num_edge_types);
    out_.nodes.resize(num_node_types);
    if (request.disjoint) out_.trees.resize(num_node_types);
    out_.edges.resize(num_edge_types);
    out_.num_sampled_nodes.resize(num_node_types);
    out_.num_sampled_edges.resize(num_edge_types);
    excluded_.resize(num_edge_types);
    waiting_.resize(num_edge_types);
    workspace.ids.resize(num_node_types);
    for (std::size_t t = 0; t < num_node_types; ++t) {
      with_ids(t, [](auto& ids) { ids.clear(); });
    }
  }

  void add_seeds() {
    for (const Seeds& seeds : request_.seeds) add_seeds(seeds);
    for (std::size_t t = 0; t < end_.size(); ++t) {
      end_[t] = out_.nodes[t].size();
      out_.num_sampled_nodes[t].push_back(end_[t]);
    }
  }

  // Edges that no hop may take, still to be found: by find(), or over a paged type in stretches,
  // which the caller goes on with until list() says false.
  ExcludedEdges& exclude(const ExcludedPairs& pairs) {
    const auto e = static_cast<std::size_t>(pairs.edge_type);
    excluded_[e] = std::make_unique<ExcludedEdges>(graph_.edge_types[e], pairs, request_.threads);
    return *excluded_[e];
  }

  // Begins a hop: over each edge type in turn as far as memory has the sources. Returns what is to
  // be read before relabel_rest().
  std::span<const SourceList> expand(std::size_t hop) {
    wanted_.clear();
    relabelled_ = 0;
    for (std::size_t e = 0; e < base_.size(); ++e) {
      choose(e, hop);
      fetch(e);
      if (!wanted_.empty()) continue;
      relabel(e);
      ++relabelled_;
    }
    return wanted_;
  }

  // New nodes are numbered in the order of edge types, whatever was read.
  void relabel_rest() {
    for (; relabelled_ < base_.size(); ++relabelled_) relabel(relabelled_);
    for (std::size_t t = 0; t < end_.size(); ++t) {
      const std::int64_t before = std::exchange(end_[t], out_.nodes[t].size());
      begin_[t] = request_.whole_frontier ? 0 : before;
      out_.num_sampled_nodes[t].push_back(end_[t] - before);
    }
  }

  // Replaces the drawn edges of one type by all that join sampled nodes (of one tree, if disjoint;
  // not later than its seed, if timed), grouped by destination. They come in stretches, which the
  // caller goes on with until list() says false.
  InducedStretches induced(std::size_t e) {
    const SampledEdgeType& type = graph_.edge_types[e];
    const auto dst = static_cast<std::size_t>(type.dst_type);
    out_.num_sampled_edges[e].clear();
    out_.edges[e].resize(0);
    const std::int64_t count = type.csc.num_edges == 0 ? 0 : out_.nodes[dst].size();
    look_up_degrees(e, 0, count, -1, nullptr);
    return {type, ranges_};
  }

  void keep_induced(std::size_t e, InducedStretches& stretches) {
    const SampledEdgeType& type = graph_.edge_types[e];
    const auto dst = static_cast<std::size_t>(type.dst_type);
    const std::int64_t* const trees = request_.disjoint ? out_.trees[dst].data() : nullptr;
    with_ids(static_cast<std::size_t>(type.src_type), [&]<class Key>(const IdMap<Key>& ids) {
      const auto key = [&](std::int64_t col, std::int64_t source) {
        return key_of<Key>(source, trees == nullptr ? 0 : trees[col], type.csc.num_src);
      };
      stretches.keep(ids, key, request_.threads, out_.edges[e]);
    });
  }

  // Once all induced edges of a type are there.
  void drop_excluded(std::size_t e) {
    if (excluded_[e] == nullptr) return;
    drop_if(out_.edges[e], 0, [&](std::int64_t slot) { return excluded_[e]->has_slot(slot); });
  }

  Sample take() { return std::move(out_); }

 private:
  // Node types above this need 64-bit keys.
  static constexpr std::int64_t kNarrowNodes = std::int64_t{1} << 32;

  // Calls call(the id map of a node type). Its keys may fit 32 bits; a node of a tree is a pair,
  // for which 64 are taken.
  template <class Call>
  void with_ids(std::size_t node_type, const Call& call) {
    Workspace::NodeIds& ids = workspace_.ids[node_type];
    if (!request_.disjoint && graph_.num_nodes[node_type] <= kNarrowNodes) {
      call(ids.narrow);
    } else {
      call(ids.wide);
    }
  }

  bool is_asked(std::size_t e) const { return graph_.edge_types[e].csc.is_asked(); }

  // The key of `node` in the id map: the node itself, or the node of its tree.
  template <class Key>
  Key key_of(std::int64_t node, std::int64_t tree, std::int64_t num_nodes) const {
    if constexpr (sizeof(Key) == 8) {
      if (request_.disjoint) return static_cast<Key>(tree * num_nodes + node);
    }
    return static_cast<Key>(node);
  }

  void add_seeds(const Seeds& seeds) {
    const auto type = static_cast<std::size_t>(seeds.node_type);
    const std::int64_t num_nodes = graph_.num_nodes[type];
    Buffer<std::int64_t>& nodes = out_.nodes[type];
    with_ids(type, [&]<class Key>(IdMap<Key>& ids) {
      ids.reserve(static_cast<std::size_t>(nodes.size()) + seeds.nodes.size());
      for (std::size_t i = 0; i < seeds.nodes.size(); ++i) {
        const std::int64_t node = seeds.nodes[i];
        check_seed(i, node, num_nodes);
        const std::int64_t tree = num_trees_++;
        ids.find_or_insert(key_of<Key>(node, tree, num_nodes),
                           static_cast<std::uint32_t>(nodes.size()));
        nodes.push_back(node);
        if (request_.disjoint) out_.trees[type].push_back(tree);
      }
    });
    if (seeds.times.empty()) return;
    const auto middle = seeds.times.begin() + std::ssize(seeds.nodes);
    latest_.insert(latest_.end(), seeds.times.begin(), middle);
    earliest_.insert(earliest_.end(), middle, seeds.times.end());
  }

  // Positions are 32-bit, and each edge may bring a new node.
  void check_room(std::size_t src, std::int64_t num_edges) const {
    if (num_edges >= std::numeric_limits<std::uint32_t>::max() - out_.nodes[src].size()) {
      throw_too_many();
    }
  }

  // A hop has three steps for each edge type. The first: which edges the frontier takes.
  void choose(std::size_t e, std::size_t hop) {
    const SampledEdgeType& type = graph_.edge_types[e];
    const std::int64_t begin = begin_[static_cast<std::size_t>(type.dst_type)];
    const std::int64_t end = end_[static_cast<std::size_t>(type.dst_type)];
    const std::int64_t k = request_.num_neighbors[e][hop];
    Sample::Edges& edges = is_asked(e) ? drawn_ : out_.edges[e];
    const std::int64_t base = base_[e] = edges.row.size();
    if (begin == end || k == 0 || type.csc.num_edges == 0) return;
    const std::int64_t total = look_up_degrees(e, begin, end - begin, k, excluded_[e].get());
    check_room(static_cast<std::size_t>(type.src_type), total);
    edges.resize(base + total);
    const Draw draw{.order = type.order,
                    .in = ranges_,
                    .k = k,
                    .replace = request_.replace,
                    .key = derive_key(derive_key(request_.key, hop), e),
                    .col = begin,
                    .ranks = edges.slot.data() + base,
                    .cols = edges.col.data() + base};
    bool complete =
        request_.labor && k > 0
            ? draw_by_variates(draw, type.csc, {*request_.labor, request_.key, hop, type.src_type},
                               request_.threads)
            : draw_ranks(draw, request_.threads);
    for (const auto& [i, gone] : without_) complete = draw_without(draw, i, gone) && complete;
    if (!complete) drop_if(edges, base, [&](std::int64_t slot) { return slot == kMissing; });
  }

  // The second: their sources, from memory or to be read.
  void fetch(std::size_t e) {
    const SampledEdgeType& type = graph_.edge_types[e];
    if (is_asked(e)) {
      Sample::Edges drawn = std::exchange(drawn_, {});
      find_slots(type, drawn.slot.data(), drawn.slot.size(), request_.threads);
      waiting_[e] = {NarrowIds(drawn.slot.span()), NarrowIds(drawn.col.span()), {}};
      wanted_.push_back({&type.csc, waiting_[e].slot, nullptr, &waiting_[e].source});
      return;
    }
    Sample::Edges& edges = out_.edges[e];
    fetch_sources(type, edges.slot.data() + base_[e], edges.row.data() + base_[e],
                  edges.slot.size() - base_[e], request_.threads, wanted_);
  }

  // Edges that have waited for their sources join those of the hops before.
  void keep_waiting(std::size_t e) {
    const Waiting waited = std::exchange(waiting_[e], {});
    Sample::Edges& edges = out_.edges[e];
    const std::int64_t base = base_[e] = edges.row.size(), count = waited.slot.size();
    edges.resize(base + count);
    waited.slot.widen_to(edges.slot.data() + base);
    waited.col.widen_to(edges.col.data() + base);
    waited.source.read(0, {edges.row.data() + base, static_cast<std::size_t>(count)});
  }

  // The third: their positions in the batch, which grows by the nodes that are new, in the order of
  // their first edge.
  void relabel(std::size_t e) {
    const SampledEdgeType& type = graph_.edge_types[e];
    const auto src = static_cast<std::size_t>(type.src_type);
    if (is_asked(e)) keep_waiting(e);
    Sample::Edges& edges = out_.edges[e];
    check_room(src, edges.row.size() - base_[e]);
    with_ids(src, [&]<class Key>(IdMap<Key>& ids) {
      const std::int64_t num_src = type.csc.num_src;
      const std::int64_t base = base_[e], last = edges.row.size();
      const std::int64_t stored = out_.nodes[src].size();
      const bool in_trees = sizeof(Key) == 8 && request_.disjoint;
      const std::int64_t most = stored + (last - base);
      out_.nodes[src].resize(most);
      if (in_trees) out_.trees[src].resize(most);
      // After the resizing above, which may have moved them.
      std::int64_t* const nodes = out_.nodes[src].data();
      std::int64_t* const row = edges.row.data();
      const std::int64_t* const col = edges.col.data();
      std::int64_t* const src_trees = in_trees ? out_.trees[src].data() : nullptr;
      const std::int64_t* const dst_trees =
          in_trees ? out_.trees[static_cast<std::size_t>(type.dst_type)].data() : nullptr;
      const auto key_at = [&](std::int64_t j) {
        return key_of<Key>(row[j], dst_trees == nullptr ? 0 : dst_trees[col[j]], num_src);
      };
      const std::int64_t step = chunk_sizes.relabelled_edges;
      std::int64_t fresh = stored;
      for (std::int64_t from = base; from < last; from += step) {
        const std::int64_t to = std::min(from + step, last);
        ids.reserve(static_cast<std::size_t>(fresh + (to - from)));
        // Not visit_announced(): `fresh` has to stay in a register.
        for (std::int64_t j = from; j < std::min(from + kPrefetchAhead, to); ++j) {
          ids.prefetch(key_at(j));
        }
        for (std::int64_t j = from; j < to; ++j) {
          if (j + kPrefetchAhead < to) ids.prefetch(key_at(j + kPrefetchAhead));
          const std::int64_t node = row[j];
          if (static_cast<std::uint64_t>(node) >= static_cast<std::uint64_t>(num_src)) {
            throw_bad_index(type.csc, node);
          }
          const std::uint32_t at = ids.find_or_insert(key_at(j), static_cast<std::uint32_t>(fresh));
          nodes[fresh] = node;  // written over by the next one if it is not new
          if (src_trees != nullptr) src_trees[fresh] = dst_trees[col[j]];
          row[j] = at;
          fresh += at == fresh;
        }
      }
      out_.nodes[src].resize(fresh);
      if (in_trees) out_.trees[src].resize(fresh);
    });
    out_.num_sampled_edges[e].push_back(edges.row.size() - base_[e]);
  }

  // Fills first, degree and offset for `count` nodes from `begin` on; returns how many edges they
  // draw in all. Nodes with excluded edges are listed in without_, and have fewer to draw.
  std::int64_t look_up_degrees(std::size_t e, std::int64_t begin, std::int64_t count,
                               std::int64_t k, const ExcludedEdges* excluded) {
    const SampledEdgeType& type = graph_.edge_types[e];
    const Csc& csc = type.csc;
    const auto dst = static_cast<std::size_t>(type.dst_type);
    const std::int64_t* const frontier = out_.nodes[dst].data() + begin;
    const bool timed = type.order.times != nullptr;
    const std::int64_t* const trees = timed ? out_.trees[dst].data() + begin : nullptr;
    const std::int64_t* const latest = latest_.data();
    const std::int64_t* const earliest = earliest_.empty() ? nullptr : earliest_.data();
    ranges_.resize(count);
    const auto settle = [&](std::int64_t i, std::int64_t start, std::int64_t n) {
      if (timed && request_.last && k >= 0 && n > k) {
        start += n - k;
        n = k;
      }
      ranges_.set(i, start, n, k < 0 ? n : request_.replace ? (n > 0 ? k : 0) : std::min(n, k));
    };
    const auto look_up = [&](std::int64_t i, std::int64_t start, std::int64_t stop) {
      if (timed) {
        type.order.narrow(start, stop, latest[trees[i]],
                          earliest == nullptr ? kFirstTime : earliest[trees[i]]);
      }
      if (excluded == nullptr) return settle(i, start, stop - start);
      ranges_.set(i, start, stop - start, 0);
    };
    visit_ranges(csc, frontier, count, request_.threads, look_up);
    without_.clear();
    for (std::int64_t i = 0; excluded != nullptr && i < count; ++i) {
      std::int64_t first = ranges_.first[i], n = ranges_.degree[i];
      auto gone = excluded->within(frontier[i], first, n);
      if (timed && request_.last && k >= 0) drop_older(k, first, n, gone);
      if (!gone.empty()) without_.emplace_back(i, gone);
      settle(i, first, n - static_cast<std::int64_t>(gone.size()));
    }
    return sum_offsets(ranges_.offset.data(), count);
  }

  // Narrows the ranks [first, first + n) to the last of which k are not gone.
  static void drop_older(std::int64_t k, std::int64_t& first, std::int64_t& n,
                         std::span<const std::int64_t>& gone) {
    if (n - static_cast<std::int64_t>(gone.size()) <= k) return;
    const std::int64_t end = first + n;
    std::int64_t begin = end - k;
    std::size_t kept = 0;
    for (; kept < gone.size() && gone[gone.size() - 1 - kept] >= begin; ++kept) --begin;
    gone = gone.last(kept);
    first = begin;
    n = end - begin;
  }

  // Keeps those of the edges from `base` on whose slot is not dropped.
  template <class Dropped>
  static void drop_if(Sample::Edges& edges, std::int64_t base, const Dropped& dropped) {
    std::int64_t kept = base;
    for (std::int64_t j = base; j < edges.slot.size(); ++j) {
      if (dropped(edges.slot[j])) continue;
      edges.row[kept] = edges.row[j];
      edges.slot[kept] = edges.slot[j];
      edges.col[kept] = edges.col[j];
      ++kept;
    }
    edges.resize(kept);
  }

  // Edges of a hop that wait for their sources; many batches wait at a time.
  struct Waiting {
    NarrowIds slot, col;
    NarrowNumbers source;
  };

  const SampledGraph& graph_;
  const SampleRequest& request_;
  Workspace& workspace_;
  Sample out_;
  Ranges ranges_;                          // of the frontier
  Sample::Edges drawn_;                    // of an edge type whose sources are asked for
  std::vector<Waiting> waiting_;           // [edge type]
  std::vector<std::int64_t> begin_, end_;  // [node type]: the frontier
  std::vector<std::int64_t> base_;         // [edge type]: where the hop's edges begin
  std::vector<std::unique_ptr<ExcludedEdges>> excluded_;  // [edge type], or null
  // Nodes of the hop with excluded ranks, and these ranks.
  std::vector<std::pair<std::int64_t, std::span<const std::int64_t>>> without_;
  std::vector<SourceList> wanted_;
  std::size_t relabelled_ = 0;                   // edge types of this hop that are done
  std::int64_t num_trees_ = 0;                   // seeds so far
  std::vector<std::int64_t> latest_, earliest_;  // [tree]; `earliest_` is empty without windows
};

}  // namespace gz
