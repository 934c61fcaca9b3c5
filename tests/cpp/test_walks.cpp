// sampling/walks: steps, ends, restarts and slots of walks, whatever the threads, and what is
// refused.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "check.h"
#include "sampling/walks.h"
#include "sampling_support.h"

using namespace gz;
using namespace gz::test;

namespace {

const auto kNothing = [] {};

// A graph in memory, by the neighbours of each node.
struct Lists {
  explicit Lists(const std::vector<std::vector<std::int64_t>>& neighbors) {
    for (const auto& each : neighbors) {
      indices.insert(indices.end(), each.begin(), each.end());
      indptr.push_back(std::ssize(indices));
    }
  }
  std::int64_t num_nodes() const { return std::ssize(indptr) - 1; }
  SampledEdgeType type(EdgeOrder order = {}) const {
    return {0,
            0,
            {indptr.data(), indices.data(), 8, num_nodes(), num_nodes(), std::ssize(indices),
             "edges", nullptr, nullptr},
            std::move(order)};
  }
  Walker walker(EdgeOrder order = {}) const {
    return {{{num_nodes()}, {type(std::move(order))}}, {true}};
  }

  std::vector<std::int64_t> indptr{0}, indices;
};

WalkRequest steps(const std::vector<std::int64_t>& start, std::size_t length) {
  WalkRequest made;
  made.start = start;
  made.steps.assign(length, 0);
  made.key = 7;
  return made;
}

std::vector<std::int64_t> list(const Buffer<std::int64_t>& buffer) {
  return {buffer.span().begin(), buffer.span().end()};
}

// The share of walks of three nodes, the first given, whose last is `node`; those that have
// `middle` in between alone.
double share(const std::vector<std::int64_t>& nodes, std::int64_t middle, std::int64_t node) {
  double all = 0, those = 0;
  for (std::size_t i = 0; i < nodes.size(); i += 3) {
    if (nodes[i + 1] != middle) continue;
    ++all;
    if (nodes[i + 2] == node) ++those;
  }
  return those / all;
}

}  // namespace

TEST(walks_are_edges_and_the_same_with_any_threads) {
  const Ring ring(101, 5);
  const auto file = Topology::open(ring.path);
  const Csc csc = csc_of(file);
  const Walker walker({{ring.nodes}, {{0, 0, csc}}}, {false});
  std::vector<std::int64_t> start(3000);
  for (std::size_t i = 0; i < start.size(); ++i) start[i] = static_cast<std::int64_t>(i * 7 % 101);
  WalkRequest asked = steps(start, 9);
  asked.wants_slots = true;
  for (const double q : {1.0, 4.0}) {
    asked.q = q;
    asked.threads = 1;
    const Walks walks = walker.walk(asked, kNothing);
    const auto nodes = list(walks.nodes), slots = list(walks.slots);
    bool are_edges = true;
    for (std::size_t i = 0; i < start.size(); ++i) {
      are_edges &= nodes[i * 10] == start[i];
      for (std::size_t t = 0; t < 9; ++t) {
        const std::int64_t slot = slots[i * 9 + t], v = nodes[i * 10 + t];
        are_edges &= csc.indptr[v] <= slot && slot < csc.indptr[v + 1];
        are_edges &= csc.source(slot) == nodes[i * 10 + t + 1];
      }
    }
    CHECK(are_edges);
    // Two from the same start, at the same place in their groups, are two.
    std::int64_t repeated = 0;
    for (std::size_t i = 0; i + 202 < start.size(); ++i) {
      const auto* const row = nodes.data() + i * 10;
      repeated += std::equal(row, row + 10, row + 202 * 10);
    }
    CHECK(repeated < 50);
    asked.threads = 4;
    CHECK(list(walker.walk(asked, kNothing).nodes) == nodes);
    asked.key = 8;
    CHECK(list(walker.walk(asked, kNothing).nodes) != nodes);
    asked.key = 7;
  }
}

TEST(walks_end_where_no_edge_leads_on) {
  const Lists line({{1}, {2}, {}});
  const std::vector<std::int64_t> start{0, 2, 1};
  WalkRequest asked = steps(start, 3);
  asked.wants_slots = true;
  const Walks walks = line.walker().walk(asked, kNothing);
  CHECK(list(walks.nodes) == std::vector<std::int64_t>{0, 1, 2, -1, 2, -1, -1, -1, 1, 2, -1, -1});
  CHECK(list(walks.slots) == std::vector<std::int64_t>{0, 1, -1, -1, -1, -1, 1, -1, -1});
  asked.stay = true;
  CHECK(list(line.walker().walk(asked, kNothing).nodes) ==
        std::vector<std::int64_t>{0, 1, 2, 2, 2, 2, 2, 2, 1, 2, 2, 2});
}

// In a star p has no say in the step behind a restart: its centre goes to all leaves alike.
TEST(walks_begin_anew_when_they_restart) {
  const Lists star({{1, 2, 3}, {0}, {0}, {0}});
  const std::vector<std::int64_t> start(40'000, 0);
  WalkRequest asked = steps(start, 3);
  asked.wants_slots = true;
  asked.restart = 0.5;
  asked.p = 1e-3;
  const Walks walks = star.walker().walk(asked, kNothing);
  const auto nodes = list(walks.nodes), slots = list(walks.slots);
  double all = 0, same = 0;
  for (std::size_t i = 0; i < start.size(); ++i) {
    if (slots[3 * i] < 0 || slots[3 * i + 1] >= 0 || slots[3 * i + 2] < 0) continue;
    ++all;
    if (nodes[4 * i + 1] == nodes[4 * i + 3]) ++same;
  }
  CHECK(std::abs(same / all - 1.0 / 3) < 0.04);
}

// 0 - 1, 1 - 2, 1 - 3, 0 - 2: of walks 0, 1, x the last is 0 for 1 / p, 2 for 1, 3 for 1 / q.
TEST(walks_of_node2vec_weigh_steps) {
  const Lists graph({{1, 2}, {0, 2, 3}, {0, 1}, {1}});
  const std::vector<std::int64_t> start(40'000, 0);
  WalkRequest asked = steps(start, 2);
  for (const auto& [p, q] : {std::pair{0.5, 4.0}, {4.0, 0.5}, {1e9, 1e9}, {1.0, 0.01}}) {
    asked.p = p;
    asked.q = q;
    const auto nodes = list(graph.walker().walk(asked, kNothing).nodes);
    const double all = 1 / p + 1 + 1 / q;
    CHECK(std::abs(share(nodes, 1, 0) - 1 / p / all) < 0.025);
    CHECK(std::abs(share(nodes, 1, 3) - 1 / q / all) < 0.025);
  }
  // From 3 to 1 there is no step but back to weigh; all candidates are rejected but one in 1e12.
  const Lists pair({{1}, {0}});
  const std::vector<std::int64_t> one{0};
  WalkRequest back = steps(one, 3);
  back.p = 1e12;
  CHECK(list(pair.walker().walk(back, kNothing).nodes) == std::vector<std::int64_t>{0, 1, 0, 1});
}

// Where candidates are rejected by the thousand, all neighbours are weighed at once.
TEST(walks_that_reject_all_are_drawn_by_weight) {
  const Lists triangle({{1, 2}, {0, 2}, {0, 1}});
  const std::vector<std::uint64_t> sums{1, 4, 5,
                                        8, 9, 12};  // the second neighbour thrice as likely
  const std::vector<std::int64_t> start(3000, 0);
  WalkRequest asked = steps(start, 2);
  asked.p = 0.5;
  asked.q = 1e-9;
  const auto nodes = list(triangle.walker({.cumulative = sums.data()}).walk(asked, kNothing).nodes);
  // From 0 to 1: back to 0 weighs 1 / p, on to 2, which is next to 0, three times 1.
  CHECK(std::abs(share(nodes, 1, 0) - 0.4) < 0.1);
  // From 0 to 2: back to 0 weighs 1 / p, on to 1 three times 1.
  CHECK(std::abs(share(nodes, 2, 0) - 0.4) < 0.06);
}

TEST(walks_take_edges_of_their_times) {
  const Lists star({{1, 2, 3}, {0}, {0}, {0}});
  const std::vector<std::int64_t> slots{2, 0, 1, 3, 4, 5}, times{5, 10, 20, 10, 10, 30};
  const Walker walker = star.walker({.slots = slots.data(), .times = times.data()});
  const std::vector<std::int64_t> start(400, 0);
  std::vector<std::int64_t> latest, earliest, expected;
  for (int i = 0; i < 100; ++i) {
    latest.insert(latest.end(), {15, 4, 5, 25});
    earliest.insert(earliest.end(), {7, 0, 5, 20});
    expected.insert(expected.end(), {0, 1, 0, 1, 0, -1, -1, -1, 0, 3, -1, -1, 0, 2, -1, -1});
  }
  WalkRequest asked = steps(start, 3);
  asked.latest = latest;
  asked.earliest = earliest;
  asked.wants_slots = true;
  const Walks walks = walker.walk(asked, kNothing);
  CHECK(list(walks.nodes) == expected);
  const auto taken = list(walks.slots);
  CHECK((std::vector<std::int64_t>(taken.begin(), taken.begin() + 12)) ==
        (std::vector<std::int64_t>{0, 3, 0, -1, -1, -1, 2, -1, -1, 1, -1, -1}));
  asked.earliest = {};
  const auto nodes = list(walker.walk(asked, kNothing).nodes);
  std::int64_t first = 0, third = 0;
  for (std::size_t i = 0; i < nodes.size(); i += 16) {
    first += nodes[i + 1] == 1;
    third += nodes[i + 1] == 3;
  }
  CHECK(first + third == 100);
  CHECK(std::min(first, third) > 20);
  asked.latest = {};
  CHECK_THROWS(std::invalid_argument, "latest", walker.walk(asked, kNothing));
  asked.latest = latest;
  asked.earliest = std::span(earliest).first(3);
  CHECK_THROWS(std::invalid_argument, "earliest", walker.walk(asked, kNothing));
}

// Here 0 - 2 is too late, so that walks 0, 1, x go to 2 with weight 1 / q, as they go to 3.
TEST(walks_of_node2vec_know_neighbours_of_their_times) {
  const Lists graph({{1, 2}, {0, 2, 3}, {0, 1}, {1}});
  const std::vector<std::int64_t> slots{0, 1, 2, 3, 4, 6, 5, 7};
  const std::vector<std::int64_t> times{10, 50, 10, 10, 10, 10, 50, 10};
  const std::vector<std::int64_t> start(40'000, 0), latest(40'000, 20);
  const Walker walker = graph.walker({.slots = slots.data(), .times = times.data()});
  WalkRequest asked = steps(start, 2);
  asked.latest = latest;
  asked.q = 0.25;
  const auto nodes = list(walker.walk(asked, kNothing).nodes);
  CHECK(std::abs(share(nodes, 1, 2) - 4.0 / 9) < 0.025);
  CHECK(std::abs(share(nodes, 1, 3) - 4.0 / 9) < 0.025);
  // From 1 there is no step but back, rejected until all neighbours of the time are weighed at
  // once.
  const Lists line({{1}, {0, 2}, {}});
  const std::vector<std::int64_t> line_times{10, 10, 50}, one{0}, until{20};
  WalkRequest back = steps(one, 3);
  back.latest = until;
  back.p = 1e12;
  CHECK(list(line.walker({.times = line_times.data()}).walk(back, kNothing).nodes) ==
        std::vector<std::int64_t>{0, 1, 0, 1});
}

TEST(walks_refuse_what_is_wrong) {
  const Lists graph({{1}, {0}});
  const Walker walker = graph.walker();
  const std::vector<std::int64_t> start{0, 2}, good{0};
  CHECK_THROWS(std::out_of_range, "2", walker.walk(steps(start, 2), kNothing));
  CHECK_THROWS(std::invalid_argument, "steps", walker.walk(steps(good, 0), kNothing));
  WalkRequest asked = steps(good, 2);
  asked.steps = {0, 1};
  CHECK_THROWS(std::invalid_argument, "follow on each other", walker.walk(asked, kNothing));
  CHECK_THROWS(std::invalid_argument, "is_sorted",
               (Walker{{{graph.num_nodes()}, {graph.type()}}, {}}));
  Lists damaged({{1}, {0}});
  damaged.indices[0] = 5;
  CHECK_THROWS(FormatError, "5", damaged.walker().walk(steps(good, 2), kNothing));
  // Whoever cancels is not asked for ever.
  CHECK_THROWS(std::runtime_error, "enough",
               walker.walk(steps(good, 2), [] { throw std::runtime_error("enough"); }));
}
