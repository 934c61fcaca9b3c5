// The external-memory builder under the sanitizers: equal to a sort in memory, whatever the room.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "build/csc_files.h"
#include "build/in_memory.h"
#include "check.h"
#include "scratch.h"

namespace gz::test {
namespace {

struct Edges {
  std::vector<std::int64_t> src, dst;
};

Edges random_edges(std::int64_t nodes, std::size_t count, double hub_share) {
  std::mt19937_64 random(7);
  std::uniform_int_distribution<std::int64_t> node(0, nodes - 1);
  std::uniform_real_distribution<double> share(0, 1);
  Edges edges;
  for (std::size_t i = 0; i < count; ++i) {
    edges.src.push_back(node(random));
    edges.dst.push_back(share(random) < hub_share ? nodes / 2 : node(random));
  }
  return edges;
}

EdgeSlab slab_of(const Edges& edges) {
  return {IdArray::of<std::int64_t>(edges.src.data(), 1),
          IdArray::of<std::int64_t>(edges.dst.data(), 1),
          {},
          0,
          static_cast<std::int64_t>(edges.src.size())};
}

CscStatistics build(const Scratch& dir, const Edges& edges, CscOptions options,
                    std::uint64_t memory, int threads, const std::string& name) {
  const auto marks = std::make_shared<NodeMarks>(options.num_src);
  options.max_edges = edges.src.size();
  CscBuilder builder(options, {memory, dir / "", threads}, marks, marks);
  builder.append(slab_of(edges));
  return builder.finish({dir / (name + ".gl"), dir / (name + ".gd"), {}},
                        [](std::uint64_t, std::uint64_t) {});
}

}  // namespace

TEST(sort_in_memory_is_stable_and_checked) {
  const std::vector<std::int64_t> src{4, 0, 4, 1}, dst{1, 0, 1, 1};
  const auto [indptr, order] = sort_by_destination(src, dst, 5, 3);
  const std::vector<std::int64_t> expected_indptr{0, 1, 4, 4}, expected_order{1, 0, 2, 3};
  CHECK(std::vector(indptr.span().begin(), indptr.span().end()) == expected_indptr);
  CHECK(std::vector(order.span().begin(), order.span().end()) == expected_order);
  CHECK_THROWS(std::out_of_range, "edge 0: source id: found 4, expected 0 <= id < 4",
               sort_by_destination(src, dst, 4, 3));
  CHECK_THROWS(std::out_of_range, "edge 0: destination id: found 1",
               sort_by_destination(src, dst, 5, 1));
}

TEST(build_equals_the_sort_in_memory) {
  const Edges edges = random_edges(500, 60'000, 0.5);
  const auto [indptr, order] = sort_by_destination(edges.src, edges.dst, 500, 500);
  int run = 0;
  for (const std::uint64_t memory : {1ULL << 12, 1ULL << 18, 1ULL << 26}) {
    for (const int threads : {1, 4}) {
      const Scratch dir;
      CscOptions options;
      options.num_src = options.num_dst = 500;
      const std::string name = std::to_string(run++);
      const CscStatistics found = build(dir, edges, options, memory, threads, name);
      CHECK(found.num_edges == edges.src.size() && !found.ids_are_slots);
      const auto topology = Topology::open(dir / (name + ".gl"));
      CHECK(std::equal(indptr.span().begin(), indptr.span().end(), topology->indptr()));
      const auto* const sources = static_cast<const std::uint32_t*>(topology->indices());
      bool same = true;
      for (std::int64_t slot = 0; slot < order.size(); ++slot) {
        same &= sources[slot] == edges.src[static_cast<std::size_t>(order[slot])];
      }
      CHECK(same);
    }
  }
}

TEST(without_ids_the_topology_is_the_same_through_less_scratch) {
  const Edges edges = random_edges(500, 2'000, 0.4);
  for (const bool undirected : {false, true}) {
    for (const bool coalesced : {false, true}) {
      for (const SelfLoops loops : {SelfLoops::kKeep, SelfLoops::kRemove, SelfLoops::kAdd}) {
        for (const std::uint64_t memory : {1ULL << 14, 1ULL << 18}) {
          const Scratch dir;
          CscOptions options;
          options.num_src = options.num_dst = 500;
          options.undirected = undirected;
          options.self_loops = loops;
          if (coalesced) options.coalesce = Coalesce::kFirst;
          const CscStatistics with = build(dir, edges, options, memory, 2, "with");
          options.edge_ids = false;
          const CscStatistics found = build(dir, edges, options, memory, 3, "without");
          CHECK(found.num_edges == with.num_edges);
          CHECK(found.result.merged == with.result.merged);
          CHECK(found.result.duplicates == with.result.duplicates);
          CHECK(found.result.loops == with.result.loops);
          CHECK(found.result.loops_added == with.result.loops_added);
          CHECK(found.degree_quantiles == with.degree_quantiles);
          const auto a = Topology::open(dir / "with.gl"), b = Topology::open(dir / "without.gl");
          CHECK(std::equal(a->indptr(), a->indptr() + 501, b->indptr()));
          const auto* const sources = static_cast<const std::uint32_t*>(a->indices());
          CHECK(std::equal(sources, sources + a->num_edges(),
                           static_cast<const std::uint32_t*>(b->indices())));
        }
      }
    }
  }
}

TEST(edges_without_ids_wait_in_few_bytes) {
  CscOptions options;
  options.num_src = options.num_dst = 111'059'956;
  options.edge_ids = false;
  CHECK(PackedEdges::of(options, 16)->size() == 6);
  options.num_src = 1ULL << 40;
  CHECK(PackedEdges::of(options, 22)->size() == 8 && !PackedEdges::of(options, 23));
  const auto packed = PackedEdges::of(options, 5);
  Byte edge[2 * PackedEdges::kSlack];
  for (const std::uint64_t first : {0ULL, 40ULL, 1ULL << 40}) {
    for (const std::uint64_t dst : {first, first + 17, first + 31}) {
      packed->put(edge, (1ULL << 40) - 1 - dst % 3, dst, dst % 2 == 0);
      std::fill(edge + packed->size(), std::end(edge), Byte{0xFF});
      CHECK(packed->src(edge) == (1ULL << 40) - 1 - dst % 3);
      CHECK(packed->dst(edge, first) == dst);
      CHECK(packed->is_reverse(edge) == (dst % 2 == 0));
    }
  }
}

TEST(what_was_read_is_given_back_to_the_disk) {
  const Scratch dir;
  ScratchSpace space{dir / "", 0, 1 << 20, 64};
  constexpr std::uint64_t kKeys = 1000, kBytes = 8;
  {
    Runs runs(space, KeyRange(0, kKeys - 1, 100), kBytes);
    const std::uint64_t buckets = runs.range().num_buckets();
    for (int run = 0; run < 3; ++run) {
      std::vector<std::uint32_t> starts{0};
      for (std::uint64_t b = 0; b < buckets; ++b) starts.push_back(starts.back() + 5);
      Buffer<Byte> records = runs.make_records(std::int64_t{starts.back()} * 8);
      std::fill_n(records.data(), records.size(), static_cast<Byte>(run));
      runs.add(std::move(records), std::move(starts));
    }
    const std::uint64_t all = 3 * 5 * buckets * kBytes;
    CHECK(space.written == all && space.on_disk == all && space.peak == all);
    for (std::uint64_t bucket = 0; bucket < buckets; ++bucket) {
      Byte found[3 * 5 * kBytes];
      CHECK(Runs::Reader(runs, bucket).next(found, 100) == 15);
      CHECK(found[0] == 0 && found[5 * kBytes] == 1 && found[15 * kBytes - 1] == 2);
      runs.done_with(bucket + 1);
      // A part of 16 is what may lie there beside what is still to be read.
      const std::uint64_t left = 15 * (buckets - bucket - 1) * kBytes;
      CHECK(space.on_disk >= left && space.on_disk <= left + all / 8);
    }
    CHECK(space.on_disk == 0);
    runs.done_with(buckets);
  }
  CHECK(space.on_disk == 0 && space.peak == space.written);
}

TEST(sections_of_a_file_meet_anywhere) {
  // Up to and across the boundary of a block of checksums.
  for (const std::uint64_t nodes : {0ULL, 1ULL, 130'000ULL, 131'071ULL, 131'072ULL, 300'000ULL}) {
    for (const std::size_t edges : {0UL, 10UL, 262'144UL, 600'000UL}) {
      if (nodes == 0 && edges > 0) continue;
      const Scratch dir;
      TopologyWriter writer(dir / "t.gl", nodes, nodes);
      std::vector<std::int64_t> indptr(nodes + 1, static_cast<std::int64_t>(edges));
      indptr[0] = 0;
      std::vector<std::uint32_t> indices(edges);
      for (std::size_t i = 0; i < edges; ++i) indices[i] = static_cast<std::uint32_t>(i % nodes);
      writer.append_indices(indices.data(), edges / 2);
      writer.append_indptr(indptr.data(), indptr.size());
      writer.append_indices(indices.data() + edges / 2, edges - edges / 2);
      writer.finish();
      const auto topology = Topology::open(dir / "t.gl");
      CHECK(std::equal(indptr.begin(), indptr.end(), topology->indptr()));
      CHECK(std::equal(indices.begin(), indices.end(),
                       static_cast<const std::uint32_t*>(topology->indices())));
      CHECK(verify_blocks(dir / "t.gl", 0, UINT64_MAX).empty());
    }
  }
}

TEST(keys_in_buckets) {
  for (const std::uint64_t lo : {UINT64_C(0), UINT64_C(5), UINT64_MAX - 100}) {
    for (const std::uint64_t hi : {lo, lo + 1, lo + 99, UINT64_MAX}) {
      for (const std::uint64_t buckets : {2ULL, 7ULL, 2048ULL}) {
        const KeyRange range(lo, hi, buckets);
        CHECK(range.num_buckets() <= buckets);
        CHECK(range.last_key(range.num_buckets() - 1) == hi);
        CHECK(range.bucket(range.last_key(0)) == 0 && range.first_key(0) == lo);
      }
    }
  }
}

}  // namespace gz::test
