#include "sampling/hgt_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
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

  // The position of a sampled node, or kNone, for whatever destination.
  std::uint32_t find(std::int64_t, std::int64_t id) const noexcept {
    const std::uint32_t at = places.find(static_cast<std::uint64_t>(id));
    return at == kNone ? kNone : nodes[at].position;
  }
  void prefetch(std::int64_t, std::int64_t id) const noexcept {
    places.prefetch(static_cast<std::uint64_t>(id));
  }
};

std::size_t num_hops(const HgtRequest& request) {
  return request.num_samples.empty() ? 0 : request.num_samples.front().size();
}

struct Candidate {
  double arrival;
  std::uint32_t index;  // into Known::nodes

  bool operator<(const Candidate& other) const noexcept {
    return arrival != other.arrival ? arrival < other.arrival : index < other.index;
  }
};

}  // namespace

struct HgtSampler::Workspace {
  std::vector<Known> known;  // [node type]
  std::vector<Candidate> candidates;
  Buffer<std::int64_t> first;   // [destination]: where its neighbours start
  Buffer<std::int64_t> degree;  // [destination]
  Buffer<std::int64_t> offset;  // [destination + 1]: where its neighbours go in slot and source
  Buffer<std::int64_t> slot;
  Buffer<std::int64_t> source;
};

// One batch: the request, what has been sampled, and the budgets.
class HgtSampler::Run {
 public:
  Run(const HgtSampler& sampler, const HgtRequest& request, Workspace& workspace)
      : sampler_(sampler), request_(request), workspace_(workspace) {
    workspace_.known.resize(sampler.num_nodes_.size());
    for (Known& known : workspace_.known) known.clear();
    out_.nodes.resize(sampler.num_nodes_.size());
    out_.num_sampled_nodes.resize(sampler.num_nodes_.size());
    out_.edges.resize(sampler.edge_types_.size());
    out_.num_sampled_edges.resize(sampler.edge_types_.size());
  }

  void add_seeds() {
    for (const Seeds& seeds : request_.seeds) add_seeds(seeds);
    for (std::size_t t = 0; t < out_.nodes.size(); ++t) {
      out_.num_sampled_nodes[t].push_back(out_.nodes[t].size());
    }
  }

  std::size_t num_hops() const { return gz::num_hops(request_); }

  // The neighbours that the destinations of an edge type let into the budget this hop; returns what
  // is to be read before fill_budget(). The types take turns only between the hop's two halves:
  // their order does not matter.
  std::span<const SourceList> choose(std::size_t e, std::size_t hop) {
    const std::int64_t total = look_up(e, hop, kMaxNeighbors);
    workspace_.slot.resize(total);
    workspace_.source.resize(total);
    const EdgeOrder alike;
    draw_ranks({.order = alike,
                .first = workspace_.first.data(),
                .degree = workspace_.degree.data(),
                .offset = workspace_.offset.data(),
                .count = workspace_.offset.size() - 1,
                .k = kMaxNeighbors,
                .replace = false,
                .key = derive_key(derive_key(request_.key, hop), out_.nodes.size() + e),
                .col = 0,
                .ranks = workspace_.slot.data(),
                .cols = workspace_.source.data()},  // where sources will be
               request_.threads);
    wanted_.clear();
    fetch_sources(sampler_.edge_types_[e], workspace_.slot.data(), workspace_.source.data(), total,
                  request_.threads, wanted_);
    return wanted_;
  }

  // Adds them to the budget of their type.
  void fill_budget(std::size_t e) {
    const SampledEdgeType& type = sampler_.edge_types_[e];
    const std::int64_t total = workspace_.slot.size();
    const std::int64_t count = workspace_.offset.size() - 1;
    const std::int64_t* const offset = workspace_.offset.data();
    Known& known = workspace_.known[static_cast<std::size_t>(type.src_type)];
    known.reserve(total);
    for (std::int64_t i = 0; i < count; ++i) {
      const double share = 1.0 / static_cast<double>(offset[i + 1] - offset[i]);
      for (std::int64_t j = offset[i]; j < offset[i + 1]; ++j) {
        if (j + kPrefetchAhead < total) known.prefetch(i, workspace_.source[j + kPrefetchAhead]);
        if (static_cast<std::uint64_t>(workspace_.source[j]) >=
            static_cast<std::uint64_t>(type.csc.num_src)) {
          throw_bad_index(type.csc, workspace_.source[j]);
        }
        known.meet(workspace_.source[j]).budget += share;
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
  // with until list_edges() says false.
  void join(std::size_t e) {
    const SampledEdgeType& type = sampler_.edge_types_[e];
    look_up(e, 0, 0);
    stretches_.emplace(type, workspace_.first.data(), workspace_.degree.data(),
                       workspace_.degree.size());
  }

  bool list_edges() {
    wanted_.clear();
    return stretches_->list(request_.threads, wanted_);
  }
  std::span<const SourceList> wanted() const { return wanted_; }

  void keep_edges(std::size_t e) {
    const auto src = static_cast<std::size_t>(sampler_.edge_types_[e].src_type);
    stretches_->keep(workspace_.known[src], request_.threads, out_.edges[e]);
  }

  Sample take() { return std::move(out_); }

 private:
  void add_seeds(const Seeds& seeds) {
    const auto type = static_cast<std::size_t>(seeds.node_type);
    workspace_.known[type].reserve(static_cast<std::int64_t>(seeds.nodes.size()));
    for (std::size_t i = 0; i < seeds.nodes.size(); ++i) {
      check_seed(i, seeds.nodes[i], sampler_.num_nodes_[type]);
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

  // The position of the first node of a type that a hop added (0: seeds).
  std::int64_t first_of(std::size_t type, std::size_t hop) const {
    const std::vector<std::int64_t>& added = out_.num_sampled_nodes[type];
    return std::accumulate(added.begin(), added.begin() + static_cast<std::ptrdiff_t>(hop),
                           std::int64_t{0});
  }

  // Moves up to k nodes of a type from its budget into the sample. Successive draws in proportion
  // to weight are the order in which exponential clocks of these rates ring (Efraimidis & Spirakis
  // 2006, "Weighted random sampling with a reservoir").
  void take(std::size_t type, std::int64_t k, std::uint64_t key) {
    std::vector<Known::Node>& nodes = workspace_.known[type].nodes;
    workspace_.candidates.clear();
    if (k == 0) return;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i].position != kNone) continue;
      const double weight = nodes[i].budget * nodes[i].budget;
      const double uniform =
          (static_cast<double>(CounterRng(key, i).next() >> 11) + 0.5) * 0x1.0p-53;
      workspace_.candidates.push_back({-std::log(uniform) / weight, static_cast<std::uint32_t>(i)});
    }
    const std::int64_t count = std::min(k, static_cast<std::int64_t>(workspace_.candidates.size()));
    std::partial_sort(workspace_.candidates.begin(), workspace_.candidates.begin() + count,
                      workspace_.candidates.end());
    for (std::int64_t j = 0; j < count; ++j) {
      add(type, nodes[workspace_.candidates[static_cast<std::size_t>(j)].index]);
    }
  }

  // Fills first, degree, and where up to `most` neighbours of each go, for the destinations that
  // hop `from` and later ones have added; returns how many neighbours that are.
  std::int64_t look_up(std::size_t e, std::size_t from, std::int64_t most) {
    const SampledEdgeType& type = sampler_.edge_types_[e];
    const auto dst = static_cast<std::size_t>(type.dst_type);
    const Buffer<std::int64_t>& nodes = out_.nodes[dst];
    const std::int64_t begin = first_of(dst, from);
    const std::int64_t count = type.csc.num_edges == 0 ? 0 : nodes.size() - begin;
    workspace_.first.resize(count);
    workspace_.degree.resize(count);
    workspace_.offset.resize(count + 1);
    std::int64_t* const first = workspace_.first.data();
    std::int64_t* const degree = workspace_.degree.data();
    std::int64_t* const offset = workspace_.offset.data() + 1;
    visit_ranges(type.csc, nodes.data() + begin, count, request_.threads,
                 [&](std::int64_t i, std::int64_t start, std::int64_t stop) {
                   first[i] = start;
                   degree[i] = stop - start;
                   offset[i] = std::min(stop - start, most);
                 });
    return sum_offsets(workspace_.offset.data(), count);
  }

  const HgtSampler& sampler_;
  const HgtRequest& request_;
  Workspace& workspace_;
  Sample out_;
  std::vector<SourceList> wanted_;
  std::optional<InducedStretches> stretches_;
};

HgtSampler::HgtSampler(std::vector<std::int64_t> num_nodes, std::vector<SampledEdgeType> edge_types)
    : num_nodes_(std::move(num_nodes)), edge_types_(std::move(edge_types)) {
  check_edge_types(num_nodes_, edge_types_);
}

HgtSampler::~HgtSampler() = default;

void HgtSampler::check(const HgtRequest& request) const {
  check_hops("num_samples", request.num_samples, "node type", num_nodes_.size(), 0);
  if (!request.excluded.empty()) {
    throw invalid("excluded: found some, expected a sampler of neighbors");
  }
  for (const Seeds& seeds : request.seeds) check_seed_type(seeds.node_type, num_nodes_.size());
  check_files(edge_types_);
}

bool HgtSampler::reads() const noexcept { return is_asked(edge_types_); }

SamplingRun HgtSampler::begin(HgtRequest request) const {
  check(request);
  std::unique_ptr<Workspace> workspace = workspaces_.borrow();
  Run run(*this, request, *workspace);
  run.add_seeds();
  for (std::size_t hop = 0; hop < run.num_hops(); ++hop) {
    for (std::size_t e = 0; e < edge_types_.size(); ++e) {
      const std::span<const SourceList> wanted = run.choose(e, hop);
      if (!wanted.empty()) co_yield wanted;
      run.fill_budget(e);
    }
    run.take_nodes(hop);
  }
  for (std::size_t e = 0; e < edge_types_.size(); ++e) {
    run.join(e);
    while (run.list_edges()) {
      if (!run.wanted().empty()) co_yield run.wanted();
      run.keep_edges(e);
    }
  }
  workspaces_.give_back(std::move(workspace));
  co_return run.take();
}

}  // namespace gz
