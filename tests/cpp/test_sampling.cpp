// sampling/: the id map, random numbers, draws, what is refused, and many threads at once.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <set>
#include <span>
#include <stdexcept>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/rng.h"
#include "check.h"
#include "sampling/draw.h"
#include "sampling/id_map.h"
#include "sampling/neighbor_sampler.h"
#include "sampling/subset.h"
#include "sampling_support.h"

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

// Every kernel, at the ends of ranges too, draws what the plain algorithm does node by node.
TEST(draws_are_those_of_the_plain_algorithm) {
  constexpr std::int64_t kNodes = 5'000, kUntouched = -7;
  std::vector<std::int64_t> first, degree;
  for (std::uint64_t i = 0; i < kNodes; ++i) {
    first.push_back(static_cast<std::int64_t>(i) * 100);
    degree.push_back(static_cast<std::int64_t>(CounterRng(4, i).below(i % 3 == 0 ? 3 : 60)));
  }
  const EdgeOrder unordered;
  for (std::int64_t k = -1; k < 60; ++k) {
    std::vector<std::int64_t> offset{0}, ranks, cols;
    SubsetSampler subset;
    for (std::size_t i = 0; i < kNodes; ++i) {
      const std::int64_t wanted = k < 0 ? degree[i] : std::min(degree[i], k);
      std::vector<std::int64_t> drawn(static_cast<std::size_t>(wanted));
      std::iota(drawn.begin(), drawn.end(), first[i]);
      CounterRng rng(5, i);
      if (0 < wanted && wanted < degree[i]) {
        subset.draw(rng, degree[i], wanted, first[i], drawn.data());
      }
      ranks.insert(ranks.end(), drawn.begin(), drawn.end());
      cols.insert(cols.end(), drawn.size(), 1'000 + static_cast<std::int64_t>(i));
      offset.push_back(offset.back() + wanted);
    }
    for (const int threads : {1, 3}) {
      std::vector<std::int64_t> found_ranks(ranks.size() + 20, kUntouched);
      std::vector<std::int64_t> found_cols(found_ranks);
      const Draw draw{.order = unordered,
                      .first = first.data(),
                      .degree = degree.data(),
                      .offset = offset.data(),
                      .count = kNodes,
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

TEST(sampler_refuses_bad_requests) {
  const Ring ring(10, 2);
  const NeighborSampler sampler = ring.sampler();
  const std::vector<std::int64_t> good{1};
  SampleRequest none = request(good, {1});
  none.num_neighbors.clear();
  CHECK_THROWS(std::invalid_argument, "expected one per edge type (1)", sampler.sample(none));
  SampleRequest elsewhere = request(good, {1});
  elsewhere.seeds[0].node_type = 1;
  CHECK_THROWS(std::invalid_argument, "node type 1", sampler.sample(elsewhere));
  for (const std::int64_t k : {std::int64_t{1} << 32, std::int64_t{1} << 62, INT64_MAX}) {
    const std::vector<std::int64_t> many{1, 2, 3, 4};
    SampleRequest huge = request(many, {k});
    huge.replace = true;
    CHECK_THROWS(std::invalid_argument, "2^32 nodes or more", sampler.sample(huge));
  }
  // And works as ever afterwards.
  CHECK(sampler.sample(request(good, {1})).edges[0].row.size() == 1);
}

TEST(sampler_over_a_file_that_is_cut) {
  if (needs("posix", kCannotBeCut)) return;
  const Ring ring(100'000, 5);
  const NeighborSampler sampler = ring.sampler();
  const std::vector<std::int64_t> seeds{99'999};
  std::filesystem::resize_file(ring.path, kHeaderBytes + 100);
  CHECK_THROWS(FormatError, "ring.gl: file size: found 4196", sampler.sample(request(seeds, {2})));
  // Where the cut comes between that check and the read, the guard is what is left.
  const Ring late(100'000, 5);
  Csc csc = csc_of(Topology::open(late.path));
  const auto file = std::exchange(csc.file, nullptr);
  const NeighborSampler unchecked({100'000}, {{0, 0, csc}});
  std::filesystem::resize_file(late.path, kHeaderBytes + 100);
  CHECK_THROWS(OsError, "was truncated", unchecked.sample(request(seeds, {2})));
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
    return everything(sampler.sample(asked));
  };
  std::vector<Seen> expected(kBatches), found(kBatches);
  for (std::size_t b = 0; b < kBatches; ++b) expected[b] = batch(b, 1);
  std::vector<std::jthread> callers;
  for (std::size_t t = 0; t < 4; ++t) {
    callers.emplace_back([&, t] {
      for (std::size_t b = t; b < kBatches; b += 4) found[b] = batch(b, 2);
      // Errors of one caller do not reach the others.
      const std::vector<std::int64_t> bad{-1};
      CHECK_THROWS(std::out_of_range, "seed 0", sampler.sample(request(bad, {1})));
    });
  }
  callers.clear();
  CHECK(found == expected);
}

// What is drawn is held against its definition in tests/sampling/test_modes.py.
TEST(times_weights_trees_and_induced_edges_do_not_depend_on_threads) {
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
  std::vector<std::int64_t> seeds, seed_times;
  for (std::int64_t v = 0; v < 900; ++v) {
    seeds.push_back(v * 3 % ring.nodes);
    seed_times.push_back(v % 14 - 1);
  }
  SampleRequest asked = request(seeds, {4, 3});
  asked.disjoint = true;
  const auto same_on_threads = [&](EdgeOrder order) {
    const NeighborSampler sampler({ring.nodes}, {{0, 0, csc, std::move(order)}});
    asked.threads = 1;
    const Seen expected = everything(sampler.sample(asked));
    asked.threads = 3;
    CHECK(everything(sampler.sample(asked)) == expected);
    return sampler.sample(asked);
  };
  EdgeOrder timed, weighted;
  timed.times = times.data();
  weighted.cumulative = sums.data();
  CHECK_THROWS(std::invalid_argument, "a time per seed", same_on_threads(timed));
  asked.seeds[0].times = seed_times;
  for (const bool last : {false, true}) {
    asked.last = last;
    same_on_threads(timed);
  }
  asked.seeds[0].times = {};
  for (const bool replace : {false, true}) {
    asked.replace = replace;
    const Sample sample = same_on_threads(weighted);
    bool good = sample.edges[0].slot.size() > 0;
    for (const std::int64_t slot : sample.edges[0].slot.span()) {
      good = good && slot % ring.degree % 3 != 0;  // whose weight is 0
    }
    CHECK(good);
  }
  asked.replace = false;
  asked.induced = true;
  for (const bool disjoint : {false, true}) {
    asked.disjoint = disjoint;
    same_on_threads({});
  }
}

TEST(excluded_edges_must_fit_the_graph) {
  const Ring ring(50, 3);
  const NeighborSampler sampler = ring.sampler();
  const std::vector<std::int64_t> seeds{1, 2}, out{50};
  SampleRequest asked = request(seeds, {2});
  asked.excluded = {{0, seeds, std::span(seeds).first(1)}};
  CHECK_THROWS(std::invalid_argument, "found 2 sources, 1 destinations", sampler.sample(asked));
  asked.excluded = {{1, seeds, seeds}};
  CHECK_THROWS(std::invalid_argument, "an edge type below 1", sampler.sample(asked));
  asked.excluded = {{0, out, std::span(seeds).first(1)}};
  CHECK_THROWS(std::out_of_range, "found node 50, expected 0 <= node < 50", sampler.sample(asked));
}
