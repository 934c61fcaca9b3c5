// Bounds of neighbourhoods in memory are those of the file, whatever the degrees.
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/errors.h"
#include "check.h"
#include "sampling/packed_bounds.h"
#include "sampling_support.h"
#include "scratch.h"

using namespace gz;
using namespace gz::test;

namespace {

// A file of nodes with these in-degrees, whose neighbours are all node 0.
std::shared_ptr<const Topology> with_degrees(const std::string& path,
                                             const std::vector<std::int64_t>& degrees) {
  std::vector<std::int64_t> indptr{0};
  for (const std::int64_t degree : degrees) indptr.push_back(indptr.back() + degree);
  const std::vector<std::uint32_t> indices(static_cast<std::size_t>(indptr.back()));
  TopologyWriter writer(path, 1, degrees.size());
  writer.append_indptr(indptr.data(), indptr.size());
  writer.append_indices(indices.data(), indices.size());
  writer.finish();
  return Topology::open(path);
}

}  // namespace

TEST(packed_bounds_are_those_of_the_file) {
  const Scratch dir;
  std::mt19937_64 random(3);
  for (const std::size_t nodes : {0U, 1U, 63U, 64U, 65U, 128U, 1000U}) {
    std::vector<std::int64_t> degrees(nodes);
    for (std::int64_t& degree : degrees) degree = static_cast<std::int64_t>(random() % 5);
    // Some blocks with as many edges as 16 bits tell, with one more, and with far more.
    for (const std::int64_t hub : {65535, 65536, 65500, 200000}) {
      if (nodes > 0) degrees[random() % nodes] = hub;
    }
    const auto file = with_degrees(dir / (std::to_string(nodes) + ".gl"), degrees);
    const PackedBounds packed(*file);
    CHECK(packed.num_nodes() == static_cast<std::int64_t>(nodes));
    for (std::size_t v = 0; v <= nodes; ++v) {
      CHECK(packed[static_cast<std::int64_t>(v)] == file->indptr()[v]);
    }
  }
}

TEST(packed_bounds_take_a_quarter_of_the_memory) {
  CHECK(PackedBounds::num_bytes(10'000'000, 60'000'000) < 21'800'000);
  CHECK(PackedBounds::num_bytes(111'059'956, 3'200'000'000) < 8 * 111'059'956LL / 3);
  CHECK(PackedBounds::num_bytes(0, 0) > 0);
  // Never much more than the file, whatever the degrees.
  CHECK(PackedBounds::num_bytes(1000, 1'000'000'000'000) < 8 * 1300);
}

TEST(sampling_by_packed_bounds_gives_the_same) {
  const Ring ring(1000, 7);
  const auto file = Topology::open(ring.path);
  const NeighborSampler packed(
      {{ring.nodes}, {{0, 0, csc_of(file, nullptr, std::make_shared<PackedBounds>(*file))}}});
  const std::vector<std::int64_t> seeds{0, 17, 999, 64, 63};
  const SampleRequest wanted = request(seeds, {3, -1, 2});
  CHECK(everything(sample_of(packed, wanted)) == everything(sample_of(ring.sampler(), wanted)));
}

TEST(bounds_are_packed_for_their_own_file_alone) {
  const Ring ring(1000, 7), other(999, 7);
  const auto file = Topology::open(ring.path);
  CHECK_THROWS(std::invalid_argument, "bounds: found those of 999 nodes, expected 1000",
               csc_of(file, nullptr, std::make_shared<PackedBounds>(*Topology::open(other.path))));
}

TEST(damaged_bounds_are_not_packed) {
  const Ring ring(1000, 7);
  {
    std::fstream file(ring.path, std::ios::binary | std::ios::in | std::ios::out);
    const std::int64_t beyond = 1 << 30;
    file.seekp(static_cast<std::streamoff>(Topology::open(ring.path)->indptr_offset() + 8 * 500));
    file.write(reinterpret_cast<const char*>(&beyond), sizeof beyond);
  }
  CHECK_THROWS(FormatError, "indptr[501]: found a range outside",
               PackedBounds(*Topology::open(ring.path)));
}
