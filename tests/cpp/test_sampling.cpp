// sampling/ and build/: the id map, subsets, the sampler's contract, and many threads at once.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
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
#include "scratch.h"

using namespace gz;
using namespace gz::test;

namespace {

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
  const std::vector<std::int64_t> good{1}, negative{1, -1}, beyond{10};
  CHECK_THROWS(std::out_of_range, "seed 1: found node -1, expected 0 <= node < 10",
               sampler.sample(request(negative, {1})));
  CHECK_THROWS(std::out_of_range, "seed 0: found node 10", sampler.sample(request(beyond, {1})));
  CHECK_THROWS(std::invalid_argument, "num_neighbors: found -2",
               sampler.sample(request(good, {-2})));
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

TEST(sampler_over_garbage) {
  std::vector<std::int64_t> seeds(1000);
  std::iota(seeds.begin(), seeds.end(), 0);
  for (const bool is_labor : {false, true}) {
    const auto asked = [&](std::int64_t k) {
      SampleRequest made = request(seeds, {k});
      if (is_labor) made.labor = Labor{};
      return made;
    };
    const Ring ring(1000, 10);
    for (const char byte : {'\xFF', '\x7F', '\x80', '\x01'}) {
      overwrite(ring.path, kHeaderBytes + 8 * 500, std::string(8 * 501, byte));
      for (const std::int64_t k : {-1LL, 3LL}) {
        CHECK_THROWS(FormatError, "ring.gl: indptr[", ring.sampler().sample(asked(k)));
      }
    }
    const Ring other(1000, 10);
    overwrite(other.path, kHeaderBytes + 8192, std::string(40'000, '\xFF'));
    CHECK_THROWS(FormatError, "ring.gl: indices: found node 4294967295",
                 other.sampler().sample(asked(2)));
  }
}

TEST(sampler_over_a_file_that_is_cut) {
  if (needs("posix", kCannotBeCut)) return;
  const std::vector<std::int64_t> seeds{99'999};
  for (const bool is_labor : {false, true}) {
    SampleRequest asked = request(seeds, {2});
    if (is_labor) asked.labor = Labor{};
    const Ring ring(100'000, 5);
    Csc csc = csc_of(Topology::open(ring.path));
    // Where the cut comes between the check of the file's size and the read, the guard is what is
    // left.
    const auto file = std::exchange(csc.file, nullptr);
    const NeighborSampler unchecked({100'000}, {{0, 0, csc}}), checked = ring.sampler();
    std::filesystem::resize_file(ring.path, kHeaderBytes + 100);
    CHECK_THROWS(FormatError, "ring.gl: file size: found 4196", checked.sample(asked));
    CHECK_THROWS(OsError, "was truncated", unchecked.sample(asked));
  }
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

// Of the definitions of tests/sampling/test_modes.py, on several threads. In a ring the slots of
// node v are v * degree + j: times rise with j, and every third weight is 0.
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
  struct Mode {
    bool timed, weighted, disjoint, last = false, replace = false, induced = false;
  };
  for (const Mode mode : {Mode{true, false, true},
                          {true, false, true, true},
                          {false, true, true},
                          {false, true, true, false, true},
                          {false, false, false, false, false, true},
                          {false, false, true, false, false, true}}) {
    EdgeOrder order;
    if (mode.timed) order.times = times.data();
    if (mode.weighted) order.cumulative = sums.data();
    const NeighborSampler sampler({ring.nodes}, {{0, 0, csc, order}});
    SampleRequest asked = request(seeds, {mode.weighted ? 20 : 4, 3});
    asked.disjoint = mode.disjoint;
    asked.last = mode.last;
    asked.replace = mode.replace;
    asked.induced = mode.induced;
    if (mode.timed) {
      CHECK_THROWS(std::invalid_argument, "a time per seed", sampler.sample(asked));
      asked.seeds[0].times = seed_times;
    }
    asked.threads = 1;
    const Sample one = sampler.sample(asked);
    asked.threads = 3;
    CHECK(one.edges[0].row.size() > 900 && everything(sampler.sample(asked)) == everything(one));
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
