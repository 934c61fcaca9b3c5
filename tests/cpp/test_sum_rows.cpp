// gather/sum_rows: what sums over in-edges refuse; sums are held against a loop over decoded rows
// in tests/nn/test_first_aggregation.py.
#include <cstdint>
#include <cstring>
#include <random>
#include <stdexcept>
#include <vector>

#include "check.h"
#include "gather/gather.h"
#include "gather/sum_rows.h"
#include "scratch.h"

using namespace gz;
using namespace gz::test;

namespace {

using Ids = std::vector<std::int64_t>;

std::vector<float> floats_of(const Buffer<std::byte>& rows) {
  std::vector<float> out(static_cast<std::size_t>(rows.size()) / sizeof(float));
  if (!out.empty()) std::memcpy(out.data(), rows.data(), out.size() * sizeof(float));
  return out;
}

GatherPlan::Source sum_of(const RowTable& table, bool is_mean) {
  GatherPlan::Source source{0, table};
  source.sum = {0, 0, is_mean};
  return source;
}

}  // namespace

TEST(sums_ahead_want_edges_by_destination) {
  const Ids src{0, 1, 2};
  const auto bounds = [&](const Ids& dst, std::int64_t num_dst) {
    const InEdges edges = in_edges(src, dst, num_dst);
    const std::span<const std::int64_t> found = edges.bounds.span();
    return Ids(found.begin(), found.end());
  };
  CHECK(bounds({0, 0, 2}, 4) == Ids{0, 2, 2, 3, 3});
  CHECK(bounds({1, 1, 1}, 2) == Ids{0, 0, 3});
  CHECK_THROWS(std::invalid_argument, "edge 1 to node 0, expected them by destination",
               bounds({1, 0, 1}, 2));
  CHECK_THROWS(std::invalid_argument, "below 2", bounds({0, 1, 2}, 2));
  CHECK_THROWS(std::invalid_argument, "edge 0 to node -1", bounds({-1, 0, 1}, 2));

  const float numbers[] = {1, 2, 3, 4};
  const RowTable table{reinterpret_cast<const std::byte*>(numbers), 4, 4, 4};
  GatherPlan plan;
  plan.num_lists = 2;
  plan.columns.push_back(sum_of(table, false));
  const auto sums = [&](const Ids& index, const Ids& from, const Ids& dst) {
    const std::span<const std::int64_t> lists[] = {index, {}};
    return gather(plan, lists, 1, {}, {{2}, {{from, dst}}});
  };
  CHECK(floats_of(sums({3, 0}, {0, 1}, {0, 0}).columns[0].rows) == std::vector<float>{5, 0});
  CHECK_THROWS(std::out_of_range, "found row 2, expected 0 <= row < 2", sums({3, 0}, {2}, {0}));
  CHECK_THROWS(std::out_of_range, "found row 4, expected 0 <= row < 4", sums({4, 0}, {1}, {0}));
  plan.columns.push_back({0, table});
  plan.columns.back().inner_of = 0;
  CHECK_THROWS(std::invalid_argument, "found 2 of 1 nodes", sums({3}, {0}, {0}));
}
