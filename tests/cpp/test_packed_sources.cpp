// Neighbours in memory are those of the file, however many bits they take.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/errors.h"
#include "check.h"
#include "sampling/packed_sources.h"
#include "sampling_support.h"
#include "scratch.h"

using namespace gz;
using namespace gz::test;

namespace {

// A file of one node that has all of these as its neighbours.
template <class Index>
std::shared_ptr<const Topology> with_sources(const std::string& path, std::uint64_t num_src,
                                             const std::vector<Index>& sources) {
  const std::vector<std::int64_t> indptr{0, std::ssize(sources)};
  TopologyWriter writer(path, num_src, 1);
  CHECK(writer.index_bytes() == sizeof(Index));
  writer.append_indptr(indptr.data(), indptr.size());
  writer.append_indices(sources.data(), sources.size());
  writer.finish();
  return Topology::open(path);
}

template <class Index>
void check_packed(std::uint64_t num_src) {
  std::mt19937_64 random(num_src);
  for (const std::size_t edges : {0U, 1U, 7U, 8U, 9U, 1000U}) {
    const Scratch dir;
    std::vector<Index> sources(edges);
    for (Index& source : sources) source = static_cast<Index>(random() % num_src);
    if (edges > 0) sources.back() = static_cast<Index>(num_src - 1);
    const PackedInts packed = pack_sources(*with_sources(dir / "packed.gl", num_src, sources));
    CHECK(packed.size() == static_cast<std::int64_t>(edges));
    for (std::size_t slot = 0; slot < edges; ++slot) {
      CHECK(packed[static_cast<std::int64_t>(slot)] == static_cast<std::int64_t>(sources[slot]));
    }
  }
}

}  // namespace

TEST(packed_sources_are_those_of_the_file) {
  constexpr std::uint64_t kOne = 1;
  for (const std::uint64_t num_src : {kOne, kOne * 2, kOne * 3, kOne * 256, kOne * 257, kOne << 24,
                                      (kOne << 24) + 1, kOne << 27, kOne << 32}) {
    check_packed<std::uint32_t>(num_src);
  }
  for (const int bits : {33, 40, 56, 57, 58, 62}) {
    check_packed<std::int64_t>((kOne << bits) - 1);
    check_packed<std::int64_t>((kOne << bits) + 1);
  }
}

TEST(packed_sources_take_no_more_than_their_bits) {
  CHECK(packed_sources_bytes(10'000'000, 60'000'000) == 3 * 60'000'000 + 8);
  CHECK(packed_sources_bytes(20'000'000, 8) == 25 + 8);
  CHECK(packed_sources_bytes(0, 0) == 8);
  CHECK(packed_sources_bytes(std::int64_t{1} << 60, 10) == 88);
}

TEST(sampling_by_packed_sources_gives_the_same) {
  const Ring ring(1000, 7);
  const auto file = Topology::open(ring.path);
  const auto packed = std::make_shared<PackedInts>(pack_sources(*file));
  const NeighborSampler sampler({{ring.nodes}, {{0, 0, csc_of(file, nullptr, nullptr, packed)}}});
  const std::vector<std::int64_t> seeds{0, 17, 999, 64, 63};
  for (const bool induced : {false, true}) {
    SampleRequest wanted = request(seeds, {3, -1, 2});
    wanted.induced = induced;
    CHECK(everything(sample_of(sampler, wanted)) == everything(sample_of(ring.sampler(), wanted)));
  }
}

TEST(sources_are_packed_for_their_own_file_alone) {
  const Ring ring(1000, 7), other(1000, 6);
  const auto packed = std::make_shared<PackedInts>(pack_sources(*Topology::open(other.path)));
  CHECK_THROWS(std::invalid_argument, "packed: found the neighbours of 6000 edges, expected 7000",
               csc_of(Topology::open(ring.path), nullptr, nullptr, packed));
}

TEST(sources_of_a_file_that_was_cut_short_are_not_packed) {
  if (needs("posix", kCannotBeCut)) return;
  const Ring ring(1000, 7);
  const auto file = Topology::open(ring.path);
  std::filesystem::resize_file(ring.path, file->indices_offset() + 4 * 5000);
  CHECK_THROWS(FormatError, "bytes", pack_sources(*file));
}

TEST(damaged_sources_are_not_packed) {
  const Ring ring(1000, 7);
  const auto file = Topology::open(ring.path);
  {
    std::fstream damaged(ring.path, std::ios::binary | std::ios::in | std::ios::out);
    const std::uint32_t beyond = 1000;
    damaged.seekp(static_cast<std::streamoff>(file->indices_offset() + 4 * 5000));
    damaged.write(reinterpret_cast<const char*>(&beyond), sizeof beyond);
  }
  CHECK_THROWS(FormatError, "indices: found node 1000, expected 0 <= node < 1000",
               pack_sources(*file));
}
