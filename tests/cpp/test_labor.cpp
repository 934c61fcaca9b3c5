// sampling/labor.h: variates, the chooser against a sort, and samples against the definition.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "check.h"
#include "sampling/labor.h"
#include "sampling_support.h"
#include "scratch.h"

using namespace gz;
using namespace gz::test;

namespace {

constexpr std::int64_t kNodes = 20'000;

std::vector<double> uniforms(const Variates& variates) {
  std::vector<double> all;
  for (std::int64_t node = 0; node < kNodes; ++node) {
    all.push_back(-std::expm1(-variates.exponential(node)));
  }
  return all;
}

// How far the distribution is from uniform: the statistic of Kolmogorov and Smirnov, times √n.
double distance_from_uniform(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const double n = static_cast<double>(values.size());
  double most = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double at = static_cast<double>(i);
    most = std::max({most, values[i] - at / n, (at + 1) / n - values[i]});
  }
  return most * std::sqrt(n);
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;  // the mean is 1/2 and the variance 1/12
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - 0.5) * (b[i] - 0.5);
  return 12 * sum / static_cast<double>(a.size());
}

SampleRequest labor_request(const std::vector<std::int64_t>& seeds,
                            std::vector<std::int64_t> fanout) {
  SampleRequest made = request(seeds, std::move(fanout));
  made.labor = Labor{};
  return made;
}

}  // namespace

TEST(inverse_normal_inverts) {
  bool good = true;
  for (double p = 1e-12; p < 0.5; p *= 1.01) {
    for (const double q : {p, 1 - p}) {
      const double back = std::erfc(-inverse_normal(q) / std::sqrt(2.0)) / 2;
      good = good && std::abs(back - q) < 1e-7 * q;
    }
    good = good && std::abs(inverse_normal(p) + inverse_normal(1 - p)) < 1e-3;
  }
  CHECK(good && std::abs(inverse_normal(0.5)) < 1e-12);
}

TEST(variates_are_uniform_and_drift) {
  const auto of = [](Labor labor, std::uint64_t number, std::uint64_t hop = 0, int type = 0) {
    return uniforms(Variates(labor, {1000 + number, number}, hop, type));
  };
  const Labor slow{.layer_dependent = false, .batch_dependency = 16};
  for (const std::uint64_t number : {0, 1, 7, 15, 16, 40}) {
    CHECK(distance_from_uniform(of({}, number)) < 2);    // chance: 0.0007
    CHECK(distance_from_uniform(of(slow, number)) < 2);  // each batch alone is as any other
    CHECK(correlation(of(slow, number), of(slow, number + 1)) > 0.98);
    CHECK(std::abs(correlation(of(slow, number), of(slow, number + 32))) < 0.04);
    CHECK(std::abs(correlation(of({}, number), of({}, number + 1))) < 0.04);
  }
  CHECK(std::abs(correlation(of(slow, 0), of(slow, 16))) < 0.04);
  const double half = correlation(of(slow, 0), of(slow, 8));
  CHECK(0.6 < half && half < 0.75);  // of normal variates: cos(45°) = 0.71
  // Another epoch, another hop unless they are to share, another node type.
  CHECK(std::abs(correlation(of(slow, 5), uniforms(Variates(slow, {2000 + 5, 5}, 0, 0)))) < 0.04);
  const Labor deep{.layer_dependent = true, .batch_dependency = 16};
  CHECK(std::abs(correlation(of(slow, 5, 0), of(slow, 5, 1))) < 0.04);
  CHECK(of(deep, 5, 0) == of(deep, 5, 1));
  CHECK(std::abs(correlation(of(deep, 5, 0, 0), of(deep, 5, 0, 1))) < 0.04);
}

TEST(labor_samples_are_what_the_definition_says) {
  const Ring ring(3000, 24);
  const Csc csc = csc_of(Topology::open(ring.path));
  const auto slots = static_cast<std::size_t>(ring.nodes * ring.degree);
  std::vector<std::int64_t> times(slots);
  std::vector<std::uint64_t> sums(slots);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < slots; ++i) {
    times[i] = static_cast<std::int64_t>(i) % ring.degree;
    sums[i] = sum += static_cast<std::uint64_t>(times[i] % 3);
  }
  std::vector<std::int64_t> seeds{5, 5}, seed_times{30, 2};  // a duplicate, and one that is early
  for (std::int64_t v = 0; v < 600; ++v) {
    seeds.push_back(v * 5 % ring.nodes);
    seed_times.push_back(v % 30 - 1);
  }
  for (const bool layer_dependent : {false, true}) {
    for (const bool timed : {false, true}) {
      for (const bool weighted : {false, true}) {
        EdgeOrder order;
        if (timed) order.times = times.data();
        if (weighted) order.cumulative = sums.data();
        const NeighborSampler sampler({{ring.nodes}, {{0, 0, csc, order}}});
        SampleRequest asked = labor_request(seeds, {4, 20});
        asked.labor = Labor{layer_dependent, timed ? 8U : 1U};
        asked.key = {1011, 11};
        asked.disjoint = timed;
        if (timed) asked.seeds[0].times = seed_times;
        asked.threads = 1;
        const Sample sample = sample_of(sampler, asked);
        asked.threads = 3;
        CHECK(everything(sample_of(sampler, asked)) == everything(sample));
        const Sample::Edges& edges = sample.edges[0];
        std::int64_t at = 0, col = 0;
        bool good = edges.row.size() > 5000;
        for (std::uint64_t hop = 0; hop < 2; ++hop) {
          const std::int64_t k = asked.num_neighbors[0][hop];
          const Variates variates(*asked.labor, asked.key, hop, 0);
          const std::int64_t end = col + sample.num_sampled_nodes[0][hop];
          for (; col < end; ++col) {
            std::vector<std::pair<double, std::int64_t>> all;
            for (std::int64_t j = 0; j < ring.degree; ++j) {
              const std::int64_t slot = sample.nodes[0][col] * ring.degree + j;
              if (timed && j > seed_times[static_cast<std::size_t>(sample.trees[0][col])]) continue;
              const double variate = variates.exponential(csc.source(slot));
              const double score = weighted ? variate / static_cast<double>(j % 3) : variate;
              if (!weighted || j % 3 > 0) all.emplace_back(score, slot);
            }
            std::sort(all.begin(), all.end());
            all.resize(std::min(all.size(), static_cast<std::size_t>(k)));
            std::set<std::int64_t> expected, found;
            for (const auto& [score, slot] : all) expected.insert(slot);
            for (; at < edges.col.size() && edges.col[at] == col; ++at) {
              found.insert(edges.slot[at]);
              good = good && sample.nodes[0][edges.row[at]] == csc.source(edges.slot[at]);
            }
            good = good && found == expected;
          }
        }
        CHECK(good && at == edges.row.size());
      }
    }
  }
}

// Hubs of more neighbours than are kept at a time, among nodes that are taken whole, and nodes
// without edges.
TEST(labor_looks_at_all_of_a_hub) {
  constexpr std::int64_t kHub = 30'000, kCount = 40'000;
  std::vector<std::int64_t> indptr{0};
  std::vector<std::int64_t> indices;
  for (std::int64_t v = 0; v < kCount; ++v) {
    const std::int64_t degree = v == 3 || v == 700 ? kHub : v % 3 == 0 ? 0 : v % 40;
    for (std::int64_t i = 0; i < degree; ++i) indices.push_back((v * 7 + i) % kCount);
    indptr.push_back(static_cast<std::int64_t>(indices.size()));
  }
  const Csc csc{indptr.data(), indices.data(), 8, kCount, kCount, indptr.back(), "hubs", {}, {}};
  const NeighborSampler sampler({{kCount}, {{0, 0, csc}}});
  std::vector<std::int64_t> seeds(1000);
  std::iota(seeds.begin(), seeds.end(), 0);
  SampleRequest asked = labor_request(seeds, {10});
  const Variates variates(*asked.labor, asked.key, 0, 0);
  const Sample sample = sample_of(sampler, asked);
  std::int64_t at = 0;
  bool good = true;
  for (std::int64_t v = 0; v < 1000; ++v) {
    const auto first = static_cast<std::size_t>(v);
    std::vector<std::pair<double, std::int64_t>> all;
    for (std::int64_t slot = indptr[first]; slot < indptr[first + 1]; ++slot) {
      all.emplace_back(variates.exponential(csc.source(slot)), slot);
    }
    std::sort(all.begin(), all.end());
    all.resize(std::min<std::size_t>(all.size(), 10));
    std::sort(all.begin(), all.end(), [](auto a, auto b) { return a.second < b.second; });
    for (const auto& [score, slot] : all) {
      good = good && at < sample.edges[0].slot.size() && sample.edges[0].slot[at] == slot &&
             sample.edges[0].col[at] == v;
      ++at;
    }
  }
  CHECK(good && at == sample.edges[0].slot.size());
  // A fan-out beyond all degrees asks for no memory of its size.
  asked.num_neighbors = {{std::int64_t{1} << 60}};
  const std::int64_t all_edges = indptr[1000];
  CHECK(sample_of(sampler, asked).edges[0].row.size() == all_edges);
  asked.num_neighbors = {{-1}};
  CHECK(sample_of(sampler, asked).edges[0].row.size() == all_edges);
}

TEST(labor_over_damaged_files) {
  check_damaged_files<NeighborSampler>([](const auto& seeds) { return labor_request(seeds, {2}); });
}
