#include "sampling/hgt_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "arrays/buffer.h"
#include "arrays/id_map.h"
#include "base/errors.h"
#include "base/rng.h"
#include "sampling/draw.h"
#include "sampling/induce.h"
#include "sampling/read_csc.h"

namespace gz {
namespace {

constexpr std::uint32_t kNone = IdMap<std::uint64_t>::kNone;

// Every node of one type that has been met: sampled, or with a budget. Order is that of meeting, so
// nothing hangs on the order of a hash table.
struct Known {
  struct Node {
    std::int64_t id;
    double budget;
    std::uint32_t position;  // in the batch; kNone: only in the budget
  };

  IdMap<std::uint64_t> places;  // id -> index into nodes
  std::vector<Node> nodes;

  void clear() {
    places.clear();
    nodes.clear();
  }

  // Makes room to meet `count` more.
  void reserve(std::int64_t count) {
    places.reserve(nodes.size() + static_cast<std::size_t>(count));
  }

  // REQUIRES: 0 <= id < number of nodes, reserved room.
  Node& meet(std::int64_t id) {
    if (nodes.size() >= std::numeric_limits<std::uint32_t>::max() - 1) throw_too_many();
    const auto fresh = static_cast<std::uint32_t>(nodes.size());
    const std::uint32_t at = places.find_or_insert(static_cast<std::uint64_t>(id), fresh);
    if (at == fresh) nodes.push_back({id, 0, kNone});
    return nodes[at];
  }

  // The position of a sampled node, or kNone.
  std::uint32_t find(std::int64_t id) const noexcept {
    const std::uint32_t at = places.find(static_cast<std::uint64_t>(id));
    return at == kNone ? kNone : nodes[at].position;
  }
  void prefetch(std::int64_t id) const noexcept { places.prefetch(static_cast<std::uint64_t>(id)); }
};

}  // namespace

struct HgtSampler::Workspace {
  std::vector<Known> known;  // [node type]
};

// One batch: the request, what has been sampled, and the budgets.
class HgtSampler::Run {
 public:
  Run(const SampledGraph& graph, const HgtRequest& request, Workspace& workspace)
      : graph_(graph), request_(request), workspace_(workspace) {
    workspace_.known.resize(graph.num_nodes.size());
    for (Known& known : workspace_.known) known.clear();
    out_.nodes.resize(graph.num_nodes.size());
    out_.num_sampled_nodes.resize(graph.num_nodes.size());
    out_.edges.resize(graph.edge_types.size());
    out_.num_sampled_edges.resize(graph.edge_types.size());
  }

  void add_seeds() {
    for (const Seeds& seeds : request_.seeds) add_seeds(seeds);
    for (std::size_t t = 0; t < out_.nodes.size(); ++t) {
      out_.num_sampled_nodes[t].push_back(out_.nodes[t].size());
    }
  }

  // The neighbours that the destinations of an edge type let into the budget this hop; returns what
  // is to be read before fill_budget(). The types take turns only between the hop's two halves:
  // their order does not matter.
  std::span<const SourceList> choose(std::size_t e, std::size_t hop) {
    const SampledEdgeType& type = graph_.edge_types[e];
    const auto dst = static_cast<std::size_t>(type.dst_type);
    const auto added = static_cast<std::size_t>(out_.num_sampled_nodes[dst].back());
    const std::int64_t total = ranges_.look_up(type.csc, out_.nodes[dst].span().last(added),
                                               request_.threads, kMaxNeighbors);
    slot_.resize(total);
    source_.resize(total);
    const EdgeOrder alike;
    draw_ranks({.order = alike,
                .in = ranges_,
                .k = kMaxNeighbors,
                .replace = false,
                .key = derive_key(derive_key(request_.key, hop), out_.nodes.size() + e),
                .col = 0,
                .ranks = slot_.data(),
                .cols = source_.data()},  // where sources will be
               request_.threads);
    wanted_.clear();
    fetch_sources(type, slot_.data(), source_.data(), total, request_.threads, wanted_);
    return wanted_;
  }

  // Adds them to the budget of their type.
  void fill_budget(std::size_t e) {
    const SampledEdgeType& type = graph_.edge_types[e];
    const std::int64_t total = slot_.size();
    const std::int64_t count = ranges_.size();
    const std::int64_t* const offset = ranges_.offset.data();
    Known& known = workspace_.known[static_cast<std::size_t>(type.src_type)];
    known.reserve(total);
    for (std::int64_t i = 0; i < count; ++i) {
      const double share = 1.0 / static_cast<double>(offset[i + 1] - offset[i]);
      for (std::int64_t j = offset[i]; j < offset[i + 1]; ++j) {
        if (j + kPrefetchAhead < total) known.prefetch(source_[j + kPrefetchAhead]);
        if (static_cast<std::uint64_t>(source_[j]) >=
            static_cast<std::uint64_t>(type.csc.num_src)) {
          throw_bad_index(type.csc, source_[j]);
        }
        known.meet(source_[j]).budget += share;
      }
    }
  }

  void take_nodes(std::size_t hop) {
    for (std::size_t t = 0; t < out_.nodes.size(); ++t) {
      const std::int64_t before = out_.nodes[t].size();
      take(t, request_.num_samples[t][hop], derive_key(derive_key(request_.key, hop), t));
      out_.num_sampled_nodes[t].push_back(out_.nodes[t].size() - before);
    }
  }

  // All edges of one type that join sampled nodes. They come in stretches, which the caller goes on
  // with until list() says false.
  InducedStretches induced(std::size_t e) {
    const SampledEdgeType& type = graph_.edge_types[e];
    const auto dst = static_cast<std::size_t>(type.dst_type);
    ranges_.look_up(type.csc, out_.nodes[dst].span(), request_.threads, 0);
    return {type, ranges_};
  }

  void keep_induced(std::size_t e, InducedStretches& edges) {
    const auto src = static_cast<std::size_t>(graph_.edge_types[e].src_type);
    const auto key = [](auto, std::int64_t source) { return source; };
    edges.keep(workspace_.known[src], key, request_.threads, out_.edges[e]);
  }

  Sample take() { return std::move(out_); }

 private:
  void add_seeds(const Seeds& seeds) {
    const auto type = static_cast<std::size_t>(seeds.node_type);
    workspace_.known[type].reserve(static_cast<std::int64_t>(seeds.nodes.size()));
    for (std::size_t i = 0; i < seeds.nodes.size(); ++i) {
      check_seed(i, seeds.nodes[i], graph_.num_nodes[type]);
      add(type, workspace_.known[type].meet(seeds.nodes[i]));
    }
  }

  // Puts a node into the sample. A seed that occurs twice has its first position.
  void add(std::size_t type, Known::Node& node) {
    if (node.position == kNone) {
      node.position = static_cast<std::uint32_t>(out_.nodes[type].size());
    }
    out_.nodes[type].push_back(node.id);
  }

  // Moves up to k nodes of a type from its budget into the sample. Successive draws in proportion
  // to weight are the order in which exponential clocks of these rates ring (Efraimidis & Spirakis
  // 2006, "Weighted random sampling with a reservoir").
  void take(std::size_t type, std::int64_t k, std::uint64_t key) {
    std::vector<Known::Node>& nodes = workspace_.known[type].nodes;
    std::vector<std::pair<double, std::size_t>> candidates;  // arrival, index into nodes
    if (k == 0) return;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i].position != kNone) continue;
      const double weight = nodes[i].budget * nodes[i].budget;
      const double uniform =
          (static_cast<double>(CounterRng(key, i).next() >> 11) + 0.5) * 0x1.0p-53;
      candidates.emplace_back(-std::log(uniform) / weight, i);
    }
    const std::int64_t count = std::min(k, static_cast<std::int64_t>(candidates.size()));
    std::partial_sort(candidates.begin(), candidates.begin() + count, candidates.end());
    for (std::int64_t j = 0; j < count; ++j) {
      add(type, nodes[candidates[static_cast<std::size_t>(j)].second]);
    }
  }

  const SampledGraph& graph_;
  const HgtRequest& request_;
  Workspace& workspace_;
  Sample out_;
  Ranges ranges_;  // of destinations
  Buffer<std::int64_t> slot_, source_;
  std::vector<SourceList> wanted_;
};

HgtSampler::HgtSampler(SampledGraph graph) : graph_(std::move(graph)) { graph_.check(); }

HgtSampler::~HgtSampler() = default;

std::size_t HgtSampler::check(const HgtRequest& request) const {
  const std::size_t num_hops =
      check_hops("num_samples", request.num_samples, "node type", graph_.num_nodes.size(), 0);
  if (!request.excluded.empty()) {
    throw invalid("excluded: found some, expected a sampler of neighbors");
  }
  for (const Seeds& seeds : request.seeds) graph_.check_node_type(seeds.node_type);
  graph_.check_files();
  return num_hops;
}

SamplingRun HgtSampler::begin(HgtRequest request) const {
  const std::size_t num_hops = check(request);
  std::unique_ptr<Workspace> workspace = workspaces_.borrow();
  Run run(graph_, request, *workspace);
  run.add_seeds();
  for (std::size_t hop = 0; hop < num_hops; ++hop) {
    for (std::size_t e = 0; e < graph_.edge_types.size(); ++e) {
      co_yield run.choose(e, hop);
      run.fill_budget(e);
    }
    run.take_nodes(hop);
  }
  for (std::size_t e = 0; e < graph_.edge_types.size(); ++e) {
    InducedStretches edges = run.induced(e);
    while (edges.list(request.threads)) {
      co_yield edges.wanted();
      run.keep_induced(e, edges);
    }
  }
  workspaces_.give_back(std::move(workspace));
  co_return run.take();
}

}  // namespace gz
