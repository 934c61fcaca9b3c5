// Helpers of the samplers' tests: a ring to sample from, and samples to compare.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "check.h"
#include "sampling/neighbor_sampler.h"
#include "scratch.h"

namespace gz::test {

// Everything of a sample that a caller sees.
using Seen = std::vector<std::vector<std::int64_t>>;

inline Seen everything(const Sample& sample) {
  Seen all = sample.num_sampled_nodes;
  all.insert(all.end(), sample.num_sampled_edges.begin(), sample.num_sampled_edges.end());
  const auto add = [&](const Buffer<std::int64_t>& buffer) {
    all.emplace_back(buffer.span().begin(), buffer.span().end());
  };
  for (const auto& nodes : sample.nodes) add(nodes);
  for (const auto& edges : sample.edges) {
    add(edges.row);
    add(edges.col);
    add(edges.slot);
  }
  return all;
}

// The parts that one request alone gives.
template <class Sampler, class Request>
Sample sample_of(const Sampler& sampler, Request request) {
  SamplingRun run = sampler.begin(std::move(request));
  Sample sample;
  const auto take = [&](std::size_t, Sample made) { sample = std::move(made); };
  const SampleWindow window = sample_window({&run, 1}, 0, take);
  if (window.errors.front()) std::rethrow_exception(window.errors.front());
  return sample;
}

// Reads all that is to stay in memory, a few rows at a time.
inline void load(PagedRows& rows) {
  ReadStats stats;
  for (std::int64_t group = 0; group < rows.resident().num_kept();) {
    group = rows.load(group, 100, stats);
  }
}

// For one node type and one edge type.
inline SampleRequest request(const std::vector<std::int64_t>& seeds,
                             std::vector<std::int64_t> fanout) {
  SampleRequest made;
  made.seeds = {{0, seeds}};
  made.num_neighbors = {std::move(fanout)};
  made.key = 7;
  return made;
}

// One node type, one edge type: the ring of scratch.h.
struct Ring {
  Ring(std::int64_t num_nodes, std::int64_t num_neighbors)
      : nodes(num_nodes), degree(num_neighbors) {
    write_ring(path, nodes, degree);
  }
  NeighborSampler sampler() const {
    return NeighborSampler({{nodes}, {{0, 0, csc_of(Topology::open(path))}}});
  }

  Scratch dir;
  std::string path = dir / "ring.gl";
  std::int64_t nodes;
  std::int64_t degree;
};

// Samples over rings whose files are damaged: `asks` makes a request of seeds.
template <class Sampler, class Asks>
void check_damaged_files(const Asks& asks) {
  std::vector<std::int64_t> seeds(1000);
  std::iota(seeds.begin(), seeds.end(), 0);
  const auto over = [](const Ring& ring, Csc csc) {
    return Sampler({{ring.nodes}, {{0, 0, std::move(csc)}}});
  };
  for (const char byte : {'\xFF', '\x7F', '\x80', '\x01'}) {
    const Ring ring(1000, 10);
    overwrite(ring.path, kHeaderBytes + 8 * 500, std::string(8 * 501, byte));
    CHECK_THROWS(FormatError, "ring.gl: indptr[",
                 sample_of(over(ring, csc_of(Topology::open(ring.path))), asks(seeds)));
  }
  const Ring other(1000, 10);
  overwrite(other.path, kHeaderBytes + 8192, std::string(40'000, '\xFF'));
  CHECK_THROWS(FormatError, "ring.gl: indices: found node 4294967295",
               sample_of(over(other, csc_of(Topology::open(other.path))), asks(seeds)));
  if (needs("posix", kCannotBeCut)) return;
  // Bounds of the last node are cut off, or neighbours of the first.
  for (const auto& [bytes, seed] : {std::pair{100, 99'999}, {4096 * 100, 1}}) {
    const Ring ring(100'000, 5);
    const Csc csc = csc_of(Topology::open(ring.path));
    // Where the cut comes between the check of the file's size and the read, the guard is left.
    Csc unguarded = csc;
    const auto file = std::exchange(unguarded.file, nullptr);
    const Sampler checked = over(ring, csc), unchecked = over(ring, std::move(unguarded));
    std::filesystem::resize_file(ring.path, kHeaderBytes + static_cast<std::uintmax_t>(bytes));
    const std::vector<std::int64_t> wanted{seed};
    CHECK_THROWS(FormatError, "ring.gl: file size: found " + std::to_string(kHeaderBytes + bytes),
                 sample_of(checked, asks(wanted)));
    CHECK_THROWS(OsError, "was truncated", sample_of(unchecked, asks(wanted)));
  }
}

}  // namespace gz::test
