// sampling/hgt_sampler: its contract over files, garbage and threads. Distribution: test_hgt.py.
#include <cstdint>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "check.h"
#include "sampling/hgt_sampler.h"
#include "sampling_support.h"
#include "scratch.h"

using namespace gz;
using namespace gz::test;

namespace {

HgtSampler sampler_of(const Ring& ring) {
  return HgtSampler({{ring.nodes}, {{0, 0, csc_of(Topology::open(ring.path))}}});
}

HgtRequest hgt_request(const std::vector<std::int64_t>& seeds,
                       std::vector<std::int64_t> num_samples) {
  HgtRequest made;
  made.seeds = {{0, seeds}};
  made.num_samples = {std::move(num_samples)};
  made.key = 7;
  return made;
}

}  // namespace

TEST(hgt_over_damaged_files) {
  for (const std::vector<std::int64_t>& hops : {std::vector<std::int64_t>{}, {3}}) {
    check_damaged_files<HgtSampler>([&](const auto& seeds) { return hgt_request(seeds, hops); });
  }
}

TEST(hgt_does_not_depend_on_threads) {
  const Ring ring(20'000, 80);
  const HgtSampler sampler = sampler_of(ring);
  std::vector<std::int64_t> seeds;
  for (std::int64_t v = 0; v < 2000; ++v) seeds.push_back(v * 7 % 20'000);
  HgtRequest asked = hgt_request(seeds, {500, 500});
  asked.threads = 1;
  const Seen expected = everything(sample_of(sampler, asked));
  std::vector<Seen> found(4);
  std::vector<std::jthread> callers;
  for (std::size_t t = 0; t < found.size(); ++t) {
    callers.emplace_back([&, t] {
      HgtRequest mine = asked;
      mine.threads = static_cast<int>(t) + 1;
      found[t] = everything(sample_of(sampler, mine));
    });
  }
  callers.clear();
  for (const Seen& seen : found) CHECK(seen == expected);
  asked.key = 8;
  CHECK(everything(sample_of(sampler, asked)) != expected);
}
