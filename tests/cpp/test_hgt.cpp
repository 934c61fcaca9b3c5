// sampling/hgt_sampler: its contract over files, garbage and threads. Distribution: test_hgt.py.
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "check.h"
#include "sampling/hgt_sampler.h"
#include "sampling_support.h"
#include "scratch.h"

using namespace gz;
using namespace gz::test;

namespace {

HgtSampler sampler_of(const Ring& ring) {
  return HgtSampler({ring.nodes}, {{0, 0, csc_of(Topology::open(ring.path))}});
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

TEST(hgt_over_garbage) {
  std::vector<std::int64_t> seeds(1000);
  for (std::size_t i = 0; i < seeds.size(); ++i) seeds[i] = static_cast<std::int64_t>(i);
  for (const std::vector<std::int64_t>& hops : {std::vector<std::int64_t>{}, {3}}) {
    const Ring ring(1000, 10);
    for (const char byte : {'\xFF', '\x7F', '\x80', '\x01'}) {
      overwrite(ring.path, kHeaderBytes + 8 * 500, std::string(8 * 501, byte));
      CHECK_THROWS(FormatError, "ring.gl: indptr[",
                   sample_of(sampler_of(ring), hgt_request(seeds, hops)));
    }
    const Ring other(1000, 10);
    overwrite(other.path, kHeaderBytes + 8192, std::string(40'000, '\xFF'));
    CHECK_THROWS(FormatError, "ring.gl: indices: found node 4294967295",
                 sample_of(sampler_of(other), hgt_request(seeds, hops)));
  }
}

TEST(hgt_over_a_file_that_is_cut) {
  if (needs("posix", kCannotBeCut)) return;
  const std::vector<std::int64_t> seeds{99'999};
  for (const std::vector<std::int64_t>& hops : {std::vector<std::int64_t>{}, {3}}) {
    // With the check of the file's size out of the way, the guard is what is left.
    const Ring ring(100'000, 5);
    Csc csc = csc_of(Topology::open(ring.path));
    const auto file = std::exchange(csc.file, nullptr);
    const HgtSampler unchecked({100'000}, {{0, 0, csc}});
    const HgtSampler checked = sampler_of(ring);
    std::filesystem::resize_file(ring.path, kHeaderBytes + 100);
    CHECK_THROWS(OsError, "was truncated", sample_of(unchecked, hgt_request(seeds, hops)));
    CHECK_THROWS(FormatError, "file size: found 4196",
                 sample_of(checked, hgt_request(seeds, hops)));
  }
}

TEST(hgt_does_not_depend_on_threads) {
  const Ring ring(50'000, 80);
  const HgtSampler sampler = sampler_of(ring);
  std::vector<std::int64_t> seeds;
  for (std::int64_t v = 0; v < 5000; ++v) seeds.push_back(v * 7 % 50'000);
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
