// Sums over neighbours; on all threads, for the sanitizers to see.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/isa.h"
#include "check.h"
#include "sampling/neighbor_sums.h"
#include "scratch.h"

using namespace gz;
using namespace gz::test;

namespace {

// A graph in memory and a column of float32 in a file: number c of row r is 4 r + c.
struct Graph {
  Graph(std::mt19937_64& random, std::int64_t nodes, std::int64_t edges) : num_nodes(nodes) {
    std::vector<std::int64_t> ends(static_cast<std::size_t>(edges));
    for (auto& end : ends)
      end = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(nodes));
    std::sort(ends.begin(), ends.end());
    indptr.assign(static_cast<std::size_t>(nodes) + 1, 0);
    for (const std::int64_t end : ends) ++indptr[static_cast<std::size_t>(end) + 1];
    for (std::size_t i = 1; i < indptr.size(); ++i) indptr[i] += indptr[i - 1];
    for (std::int64_t i = 0; i < edges; ++i) {
      indices.push_back(static_cast<std::uint32_t>(random() % static_cast<std::uint64_t>(nodes)));
    }
    std::ofstream file(path, std::ios::binary);
    for (std::int64_t i = 0; i < nodes * kItems; ++i) {
      const auto value = static_cast<float>(i);
      file.write(reinterpret_cast<const char*>(&value), sizeof value);
    }
  }

  Csc csc() const {
    Csc found{};
    found.indptr = indptr.data();
    found.indices = indices.data();
    found.index_bytes = 4;
    found.num_src = found.num_dst = num_nodes;
    found.num_edges = static_cast<std::int64_t>(indices.size());
    found.name = "edges";
    return found;
  }
  SummedColumn column(bool direct = true) const {
    ColumnFile file{DirectFile::open(path, direct), {}};
    const std::int64_t bytes = kItems * static_cast<std::int64_t>(sizeof(float));
    file.layout = {0, num_nodes, bytes, bytes, file.file->size()};
    return {std::move(file), kItems, {}, {}, {}};
  }
  // The expected sums of destinations; whole numbers, so that the order does not matter.
  std::vector<float> sums_of(std::int64_t first, std::int64_t last) const {
    std::vector<float> sums(static_cast<std::size_t>((last - first) * kItems));
    for (std::int64_t node = first; node < last; ++node) {
      for (auto slot = indptr[static_cast<std::size_t>(node)];
           slot < indptr[static_cast<std::size_t>(node) + 1]; ++slot) {
        for (std::int64_t c = 0; c < kItems; ++c) {
          sums[static_cast<std::size_t>((node - first) * kItems + c)] +=
              static_cast<float>(indices[static_cast<std::size_t>(slot)] * kItems + c);
        }
      }
    }
    return sums;
  }

  static constexpr std::int64_t kItems = 4;
  std::int64_t num_nodes;
  std::vector<std::int64_t> indptr;
  std::vector<std::uint32_t> indices;
  Scratch dir;
  std::string path = dir / "x";
};

std::byte* bytes_of(std::vector<float>& numbers) {
  return reinterpret_cast<std::byte*>(numbers.data());
}

}  // namespace

TEST(sums_are_those_of_every_edge) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 40; ++round) {
    const auto nodes = static_cast<std::int64_t>(1 + random() % 500);
    const Graph graph(random, nodes, static_cast<std::int64_t>(random() % 2000));
    const auto first = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(nodes));
    const auto last =
        first + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(nodes - first + 1));
    const SumLimits limits{static_cast<std::int64_t>(1 + random() % 200), 1 << 10,
                           static_cast<std::int64_t>(random() % 3000),
                           static_cast<int>(1 + random() % 4)};
    NeighborSums engine(graph.csc(), graph.column(round % 2 == 0), limits);
    for (const auto& [from, to] : {std::pair{first, last}, {std::int64_t{0}, first}}) {
      engine.begin(from, to);
      while (engine.step()) {
      }
      const float* const at = engine.sums().get();
      const std::vector<float> sums(at, at + (to - from) * Graph::kItems);
      CHECK(sums == graph.sums_of(from, to));
      CHECK(!engine.step());
    }
  }
}

TEST(sums_of_many_destinations_beside_large_chunks) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 20; ++round) {
    const Graph graph(random, 3000, static_cast<std::int64_t>(1 + random() % 30));
    // 8 bits say which destination of its part an edge has.
    NeighborSums engine(graph.csc(), graph.column(true), {1 << 24, 1 << 20, 0, 1 + round % 2});
    engine.begin(0, 3000);
    while (engine.step()) {
    }
    const float* const at = engine.sums().get();
    const std::vector<float> sums(at, at + 3000 * Graph::kItems);
    CHECK(sums == graph.sums_of(0, 3000));
  }
}

TEST(sums_that_are_given_up) {
  std::mt19937_64 random(8);
  const Graph graph(random, 300, 2000);
  NeighborSums engine(graph.csc(), graph.column(), {16, 1 << 10, 0, 2});
  engine.begin(0, 300);
  CHECK(engine.step());  // and the next read is under way
  engine.begin(100, 200);
  while (engine.step()) {
  }
  const float* const at = engine.sums().get();
  CHECK(std::vector<float>(at, at + 100 * Graph::kItems) == graph.sums_of(100, 200));
  engine.begin(0, 300);
  CHECK(engine.step());
}

TEST(sums_of_a_column_that_is_cut_short) {
  std::mt19937_64 random(9);
  const Graph graph(random, 300, 2000);
  NeighborSums engine(graph.csc(), graph.column(), {64, 1 << 10, 0, 2});
  engine.begin(0, 300);
  std::filesystem::resize_file(graph.path, 100 * Graph::kItems * sizeof(float));
  const auto run = [&] {
    while (engine.step()) {
    }
  };
  CHECK_THROWS(OsError, {"x"}, run());
}

TEST(adders_give_the_same_bits_on_any_machine) {
  std::mt19937_64 random(10);
  std::vector<std::byte> items(1000);
  std::vector<float> scale(101), zero(101);
  for (auto& item : items) item = static_cast<std::byte>(random() & 0x3B);  // no NaN of any code
  for (auto& value : scale) value = static_cast<float>(random() % 100) / 7.0F;
  for (auto& value : zero) value = static_cast<float>(random() % 100) / 3.0F;
  const std::byte* const rows[] = {items.data() + 1, items.data() + 400, items.data() + 37};
  for (const std::int64_t count : {0, 1, 7, 8, 9, 64, 101}) {
    for (const auto kernels : {float32_kernels, float16_kernels, bfloat16_kernels, int8_kernels}) {
      std::vector<float> fast(101, 0.5F), plain(101, 0.5F);
      kernels().add(rows, 3, count, scale.data(), zero.data(), bytes_of(fast));
      is_portable = true;
      kernels().add(rows, 3, count, scale.data(), zero.data(), bytes_of(plain));
      is_portable = false;
      CHECK(fast == plain);
    }
  }
}
