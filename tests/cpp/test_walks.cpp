// sampling/walks: steps and slots of walks, whatever the threads, and what is refused; how steps
// are drawn is held against the definition in tests/loader/test_walks.py.
#include <algorithm>
#include <cmath>
#include <cstdint>
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
    return {{num_nodes()}, {type(std::move(order))}, {true}};
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
  const Walker walker({ring.nodes}, {{0, 0, csc}}, {false});
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
               (Walker{{graph.num_nodes()}, {graph.type()}, {}}));
  Lists damaged({{1}, {0}});
  damaged.indices[0] = 5;
  CHECK_THROWS(FormatError, "5", damaged.walker().walk(steps(good, 2), kNothing));
  const std::vector<std::int64_t> slots{0, 1}, times{5, 10}, earliest{5, 5};
  const Walker timed = graph.walker({.slots = slots.data(), .times = times.data()});
  asked = steps(good, 2);
  CHECK_THROWS(std::invalid_argument, "latest", timed.walk(asked, kNothing));
  asked.latest = good;
  asked.earliest = earliest;
  CHECK_THROWS(std::invalid_argument, "earliest", timed.walk(asked, kNothing));
  // Whoever cancels is not asked for ever.
  CHECK_THROWS(std::runtime_error, "enough",
               walker.walk(steps(good, 2), [] { throw std::runtime_error("enough"); }));
}
