// sampling/ and build/: the id map, subsets, the sampler's contract, and many threads at once.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "arrays/id_map.h"
#include "base/rng.h"
#include "check.h"
#include "sampling/draw.h"
#include "sampling/neighbor_sampler.h"
#include "sampling/subset.h"
#include "sampling_support.h"
#include "scratch.h"

using namespace gz;
using namespace gz::test;

namespace {

// χ² of observed counts against equal ones, as a z-score.
double unevenness(const std::vector<std::int64_t>& counts) {
  double total = 0;
  for (const std::int64_t count : counts) total += static_cast<double>(count);
  const double expected = total / static_cast<double>(counts.size());
  double chi2 = 0;
  for (const std::int64_t count : counts) {
    chi2 += (static_cast<double>(count) - expected) * (static_cast<double>(count) - expected) /
            expected;
  }
  const double freedom = static_cast<double>(counts.size() - 1);
  return (chi2 - freedom) / std::sqrt(2 * freedom);
}

// Large, small and large again: the table shrinks between batches and grows within one.
template <class Key>
void compare_id_maps(Key highest) {
  IdMap<Key> map;
  for (const int count : {30'000, 100, 100, 30'000}) {
    map.clear();
    std::unordered_map<Key, std::uint32_t> reference;
    CounterRng rng(1, static_cast<std::uint64_t>(count));
    bool same = map.find(highest) == IdMap<Key>::kNone;
    for (int i = 0; i < count; ++i) {
      const Key key = i < 2 ? (i == 0 ? highest : Key{0}) : static_cast<Key>(rng.below(highest));
      const auto fresh = static_cast<std::uint32_t>(reference.size());
      map.reserve(reference.size() + 1);
      same = same && map.find_or_insert(key, fresh) == reference.emplace(key, fresh).first->second;
    }
    for (const auto& [key, value] : reference) same = same && map.find(key) == value;
    CHECK(same);
  }
}

}  // namespace

TEST(id_map_against_unordered_map) {
  compare_id_maps<std::uint32_t>(500);
  compare_id_maps<std::uint32_t>(UINT32_MAX);
  compare_id_maps<std::uint64_t>(500);
  compare_id_maps<std::uint64_t>(UINT64_MAX);
}

TEST(counter_rng_is_a_function_of_its_address) {
  CounterRng a(3, 5), b(3, 5), other_key(4, 5), other_place(3, 6);
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t value = a.next();
    CHECK(value == b.next());
    seen.insert({value, other_key.next(), other_place.next()});
  }
  CHECK(seen.size() == 300);
  CHECK(CounterRng(1, 2).below(1) == 0);
  std::vector<std::int64_t> counts(10);
  for (std::uint64_t at = 0; at < 100'000; ++at) ++counts[CounterRng(9, at).below(10)];
  CHECK(std::abs(unevenness(counts)) < 5);
}

TEST(subsets_are_distinct_and_inside) {
  SubsetSampler sampler;
  const std::pair<std::int64_t, std::int64_t> cases[] = {
      {2, 1}, {10, 9}, {48, 47}, {100, 48}, {100, 49}, {70'000, 500}, {1LL << 40, 60}};
  for (const auto& [n, k] : cases) {
    for (std::uint64_t at = 0; at < 20; ++at) {
      CounterRng rng(1, at);
      std::vector<std::int64_t> out(static_cast<std::size_t>(k));
      sampler.draw(rng, n, k, 1000, out.data());
      const std::set<std::int64_t> distinct(out.begin(), out.end());
      CHECK(static_cast<std::int64_t>(distinct.size()) == k);
      CHECK(*distinct.begin() >= 1000 && *distinct.rbegin() < 1000 + n);
    }
  }
}

TEST(subsets_are_uniform) {
  SubsetSampler sampler;
  // Every 3-subset of 6 equally often.
  std::map<std::set<std::int64_t>, std::int64_t> subsets;
  for (std::uint64_t at = 0; at < 40'000; ++at) {
    CounterRng rng(2, at);
    std::int64_t out[3];
    sampler.draw(rng, 6, 3, 0, out);
    ++subsets[{out[0], out[1], out[2]}];
  }
  std::vector<std::int64_t> counts;
  for (const auto& [subset, count] : subsets) counts.push_back(count);
  CHECK(counts.size() == 20 && std::abs(unevenness(counts)) < 5);
  // Every element equally often where the hashed variant draws.
  std::vector<std::int64_t> hits(200);
  for (std::uint64_t at = 0; at < 4'000; ++at) {
    CounterRng rng(3, at);
    std::int64_t out[60];
    sampler.draw(rng, 200, 60, 0, out);
    for (const std::int64_t value : out) ++hits[static_cast<std::size_t>(value)];
  }
  CHECK(std::abs(unevenness(hits)) < 5);
}

// Every kernel, at the ends of ranges too, draws what the plain algorithm does node by node.
TEST(draws_are_those_of_the_plain_algorithm) {
  constexpr std::int64_t kNodes = 5'000, kUntouched = -7;
  Ranges in;
  in.resize(kNodes);
  in.offset[0] = 0;
  for (std::int64_t i = 0; i < kNodes; ++i) {
    CounterRng rng(4, static_cast<std::uint64_t>(i));
    in.set(i, i * 100, static_cast<std::int64_t>(rng.below(i % 3 == 0 ? 3 : 60)), 0);
  }
  const EdgeOrder unordered;
  for (std::int64_t k = -1; k < 60; ++k) {
    std::vector<std::int64_t> ranks, cols;
    SubsetSampler subset;
    for (std::int64_t i = 0; i < kNodes; ++i) {
      const std::int64_t degree = in.degree[i], wanted = k < 0 ? degree : std::min(degree, k);
      std::vector<std::int64_t> drawn(static_cast<std::size_t>(wanted));
      std::iota(drawn.begin(), drawn.end(), in.first[i]);
      CounterRng rng(5, static_cast<std::uint64_t>(i));
      if (0 < wanted && wanted < degree) {
        subset.draw(rng, degree, wanted, in.first[i], drawn.data());
      }
      ranks.insert(ranks.end(), drawn.begin(), drawn.end());
      cols.insert(cols.end(), drawn.size(), 1'000 + i);
      in.offset[i + 1] = in.offset[i] + wanted;
    }
    for (const int threads : {1, 3}) {
      std::vector<std::int64_t> found_ranks(ranks.size() + 20, kUntouched);
      std::vector<std::int64_t> found_cols(found_ranks);
      const Draw draw{.order = unordered,
                      .in = in,
                      .k = k,
                      .replace = false,
                      .key = 5,
                      .col = 1'000,
                      .ranks = found_ranks.data(),
                      .cols = found_cols.data()};
      CHECK(draw_ranks(draw, threads));
      bool good = std::equal(ranks.begin(), ranks.end(), found_ranks.begin()) &&
                  std::equal(cols.begin(), cols.end(), found_cols.begin());
      for (std::size_t j = ranks.size(); j < found_ranks.size(); ++j) {
        good = good && found_ranks[j] == kUntouched && found_cols[j] == kUntouched;
      }
      CHECK(good);
    }
  }
}

TEST(sampler_keeps_its_contract) {
  const Ring ring(5000, 20);
  const NeighborSampler sampler = ring.sampler();
  const std::vector<std::int64_t> seeds{7, 4999, 7, 0};  // a duplicate keeps its place
  for (const bool replace : {false, true}) {
    for (const std::int64_t k : {-1LL, 0LL, 3LL, 20LL, 50LL}) {
      SampleRequest asked = request(seeds, {k, 2});
      asked.replace = replace;
      const Sample sample = sample_of(sampler, asked);
      const auto& nodes = sample.nodes[0];
      const auto& [row, col, slot] = sample.edges[0];
      CHECK(nodes[0] == 7 && nodes[1] == 4999 && nodes[2] == 7 && nodes[3] == 0);
      CHECK(row.size() == col.size() && col.size() == slot.size());
      const std::int64_t drawn = k < 0 ? 20 : replace ? k : std::min<std::int64_t>(k, 20);
      CHECK(sample.num_sampled_edges[0][0] == 4 * drawn);
      std::int64_t total = 0;
      for (const std::int64_t count : sample.num_sampled_nodes[0]) total += count;
      CHECK(total == nodes.size());
      std::set<std::pair<std::int64_t, std::int64_t>> edges;
      bool right = true;
      for (std::int64_t i = 0; i < row.size(); ++i) {
        const std::int64_t v = nodes[col[i]];
        right = right && slot[i] / 20 == v && nodes[row[i]] == (v + slot[i] % 20 + 1) % 5000;
        right = right && (i == 0 || col[i - 1] <= col[i]);
        edges.emplace(col[i], slot[i]);
      }
      CHECK(right);
      if (!replace) CHECK(static_cast<std::int64_t>(edges.size()) == row.size());
      const std::set<std::int64_t> fresh(nodes.data() + 3, nodes.data() + nodes.size());
      CHECK(static_cast<std::int64_t>(fresh.size()) == nodes.size() - 3);
    }
  }
}

TEST(sampler_refuses_bad_requests) {
  const Ring ring(10, 2);
  const NeighborSampler sampler = ring.sampler();
  const std::vector<std::int64_t> good{1}, negative{1, -1}, beyond{10};
  CHECK_THROWS(std::out_of_range, "seed 1: found node -1, expected 0 <= node < 10",
               sample_of(sampler, request(negative, {1})));
  CHECK_THROWS(std::out_of_range, "seed 0: found node 10",
               sample_of(sampler, request(beyond, {1})));
  CHECK_THROWS(std::invalid_argument, "num_neighbors: found -2",
               sample_of(sampler, request(good, {-2})));
  SampleRequest none = request(good, {1});
  none.num_neighbors.clear();
  CHECK_THROWS(std::invalid_argument, "expected one per edge type (1)", sample_of(sampler, none));
  SampleRequest elsewhere = request(good, {1});
  elsewhere.seeds[0].node_type = 1;
  CHECK_THROWS(std::invalid_argument, "node type 1", sample_of(sampler, elsewhere));
  for (const std::int64_t k : {std::int64_t{1} << 32, std::int64_t{1} << 62, INT64_MAX}) {
    const std::vector<std::int64_t> many{1, 2, 3, 4};
    SampleRequest huge = request(many, {k});
    huge.replace = true;
    CHECK_THROWS(std::invalid_argument, "2^32 nodes or more", sample_of(sampler, huge));
  }
  // And works as ever afterwards.
  CHECK(sample_of(sampler, request(good, {1})).edges[0].row.size() == 1);
}

TEST(sampler_over_damaged_files) {
  for (const std::int64_t k : {-1LL, 3LL}) {
    check_damaged_files<NeighborSampler>([&](const auto& seeds) { return request(seeds, {k}); });
  }
}

TEST(samples_do_not_depend_on_threads) {
  const Ring ring(50'000, 30);
  const NeighborSampler sampler = ring.sampler();
  std::vector<std::int64_t> seeds;
  for (std::int64_t v = 0; v < 5000; ++v) seeds.push_back(v * 7 % 50'000);
  SampleRequest asked = request(seeds, {5, 5});
  asked.threads = 1;
  const Seen expected = everything(sample_of(sampler, asked));
  for (const int threads : {2, 4}) {
    asked.threads = threads;
    CHECK(everything(sample_of(sampler, asked)) == expected);
  }
  asked.key = 8;
  CHECK(everything(sample_of(sampler, asked)) != expected);
}

TEST(one_sampler_many_threads) {
  const Ring ring(20'000, 30);
  const NeighborSampler sampler = ring.sampler();
  constexpr std::size_t kBatches = 24;
  std::vector<std::vector<std::int64_t>> seeds(kBatches);
  for (std::size_t b = 0; b < kBatches; ++b) {
    for (std::size_t i = 0; i < 200; ++i) {
      seeds[b].push_back(static_cast<std::int64_t>((b * 991 + i * 37) % 20'000));
    }
  }
  const auto batch = [&](std::size_t b, int threads) {
    SampleRequest asked = request(seeds[b], {6, 4});
    asked.key = b;
    asked.threads = threads;
    return everything(sample_of(sampler, asked));
  };
  std::vector<Seen> expected(kBatches), found(kBatches);
  for (std::size_t b = 0; b < kBatches; ++b) expected[b] = batch(b, 1);
  std::vector<std::jthread> callers;
  for (std::size_t t = 0; t < 4; ++t) {
    callers.emplace_back([&, t] {
      for (std::size_t b = t; b < kBatches; b += 4) found[b] = batch(b, 2);
      // Errors of one caller do not reach the others.
      const std::vector<std::int64_t> bad{-1};
      CHECK_THROWS(std::out_of_range, "seed 0", sample_of(sampler, request(bad, {1})));
    });
  }
  callers.clear();
  CHECK(found == expected);
}

// In a ring the slots of node v are v * degree + j: times rise with j, and every third weight is 0.
TEST(times_weights_trees_and_induced_edges) {
  const Ring ring(2'000, 12);
  const auto slots = static_cast<std::size_t>(ring.nodes * ring.degree);
  std::vector<std::int64_t> times(slots);
  std::vector<std::uint64_t> sums(slots);
  std::uint64_t sum = 0;  // wraps, which running sums may
  for (std::size_t i = 0; i < slots; ++i) {
    times[i] = static_cast<std::int64_t>(i) % ring.degree;
    sums[i] = sum += static_cast<std::uint64_t>(times[i] % 3) << 60;
  }
  const Csc csc = csc_of(Topology::open(ring.path));
  const auto sampler = [&](EdgeOrder order) {
    return NeighborSampler({{ring.nodes}, {{0, 0, csc, std::move(order)}}});
  };
  std::vector<std::int64_t> seeds, seed_times;
  for (std::int64_t v = 0; v < 900; ++v) {
    seeds.push_back(v * 3 % ring.nodes);
    seed_times.push_back(v % 14 - 1);
  }
  SampleRequest asked = request(seeds, {4, 3});
  asked.disjoint = true;
  const auto same_on_threads = [&](const NeighborSampler& of) {
    asked.threads = 1;
    const Seen expected = everything(sample_of(of, asked));
    asked.threads = 3;
    CHECK(everything(sample_of(of, asked)) == expected);
    return sample_of(of, asked);
  };

  EdgeOrder timed;
  timed.times = times.data();
  CHECK_THROWS(std::invalid_argument, "a time per seed", sample_of(sampler(timed), asked));
  asked.seeds[0].times = seed_times;
  for (const bool last : {false, true}) {
    asked.last = last;
    const Sample sample = same_on_threads(sampler(timed));
    const Sample::Edges& edges = sample.edges[0];
    bool good = edges.row.size() > 1000;
    for (std::int64_t i = 0; i < edges.row.size(); ++i) {
      const std::int64_t tree = sample.trees[0][edges.col[i]];
      const std::int64_t limit = seed_times[static_cast<std::size_t>(tree)];
      const std::int64_t time = edges.slot[i] % ring.degree;
      good = good && tree == sample.trees[0][edges.row[i]] && time <= limit;
      if (last) good = good && time > std::min(limit, ring.degree - 1) - 4;
    }
    CHECK(good);
  }

  EdgeOrder weighted;
  weighted.cumulative = sums.data();
  asked.seeds[0].times = {};
  for (const bool replace : {false, true}) {
    asked.replace = replace;
    asked.num_neighbors = {{20, 3}};
    const Sample sample = same_on_threads(sampler(weighted));
    bool good = sample.num_sampled_edges[0][0] == 900 * (replace ? 20 : 8);
    for (const std::int64_t slot : sample.edges[0].slot.span()) {
      good = good && slot % ring.degree % 3 != 0;
    }
    CHECK(good);
  }

  asked.replace = false;
  asked.induced = true;
  asked.num_neighbors = {{4, 3}};
  for (const bool disjoint : {false, true}) {
    asked.disjoint = disjoint;
    const Sample sample = same_on_threads(sampler({}));
    std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> at;
    const auto tree_of = [&](std::int64_t i) { return disjoint ? sample.trees[0][i] : 0; };
    for (std::int64_t i = 0; i < sample.nodes[0].size(); ++i) {
      at.emplace(std::pair(tree_of(i), sample.nodes[0][i]), i);
    }
    const auto* const indices = static_cast<const std::uint32_t*>(csc.indices);
    std::int64_t found = 0;
    bool good = true;
    for (std::int64_t i = 0; i < sample.nodes[0].size(); ++i) {
      const std::int64_t node = sample.nodes[0][i];
      for (std::int64_t slot = csc.indptr[node]; slot < csc.indptr[node + 1]; ++slot) {
        const auto hit = at.find({tree_of(i), static_cast<std::int64_t>(indices[slot])});
        if (hit == at.end()) continue;
        good = good && found < sample.edges[0].row.size() && sample.edges[0].slot[found] == slot &&
               sample.edges[0].row[found] == hit->second && sample.edges[0].col[found] == i;
        ++found;
      }
    }
    CHECK(good && found == sample.edges[0].row.size() && found > 900);
  }
}

TEST(excluded_edges_must_fit_the_graph) {
  const Ring ring(50, 3);
  const NeighborSampler sampler = ring.sampler();
  const std::vector<std::int64_t> seeds{1, 2}, one{1}, out{50};
  SampleRequest asked = request(seeds, {2});
  asked.excluded = {{0, seeds, one}};
  CHECK_THROWS(std::invalid_argument, "found 2 sources, 1 destinations", sample_of(sampler, asked));
  asked.excluded = {{1, seeds, seeds}};
  CHECK_THROWS(std::invalid_argument, "an edge type below 1", sample_of(sampler, asked));
  asked.excluded = {{0, out, one}};
  CHECK_THROWS(std::out_of_range, "found node 50, expected 0 <= node < 50",
               sample_of(sampler, asked));
}
