// The external-memory builder under the sanitizers: equal to a sort in memory, whatever the room.
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "build/csc_builder.h"
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
  return {{edges.src.data(), 1, IdArray::Kind::kInt64},
          {edges.dst.data(), 1, IdArray::Kind::kInt64},
          {},
          0,
          static_cast<std::int64_t>(edges.src.size())};
}

CscStatistics build(const Scratch& dir, const Edges& edges, CscOptions options,
                    std::uint64_t memory, int threads, const std::string& name,
                    bool marked = true) {
  const auto marks = marked ? std::make_shared<NodeMarks>(options.num_src) : nullptr;
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

TEST(build_with_every_option_in_little_memory) {
  const Edges edges = random_edges(100, 20'000, 0.8);
  std::uint64_t first = 0;
  for (const std::uint64_t memory : {1ULL << 12, 1ULL << 24}) {
    for (const int threads : {1, 4}) {
      const Scratch dir;
      CscOptions options;
      options.num_src = options.num_dst = 100;
      options.undirected = true;
      options.coalesce = Coalesce::kFirst;
      options.self_loops = SelfLoops::kAdd;
      const CscStatistics found = build(dir, edges, options, memory, threads, "t");
      if (first == 0) first = found.num_edges;
      CHECK(found.num_edges == first);
      CHECK(found.num_edges == found.input.edges + found.input.reverses - found.result.merged +
                                   found.result.loops_added);
    }
  }
}

TEST(without_ids_the_topology_is_the_same_through_less_scratch) {
  const Edges edges = random_edges(500, 4'000, 0.4);
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

TEST(an_end_that_is_no_node_is_named) {
  for (const bool of_source : {true, false}) {
    Edges edges = random_edges(100, 5'000, 0.5);
    (of_source ? edges.src : edges.dst)[4'321] = 100;
    const Scratch dir;
    CscOptions options;
    options.num_src = options.num_dst = 100;
    CHECK_THROWS(std::out_of_range,
                 of_source ? "edge 4321: source id: found 100, expected 0 <= id < 100"
                           : "edge 4321: destination id: found 100, expected 0 <= id < 100",
                 build(dir, edges, options, 1 << 20, 2, "t"));
  }
}

TEST(items_of_parallel_edges_are_joined_each_by_itself) {
  const Edges edges = random_edges(20, 2'000, 0.2);
  std::vector<float> one(edges.src.size());
  std::vector<std::int64_t> two(2 * edges.src.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    one[i] = static_cast<float>(i % 13);
    two[2 * i] = static_cast<std::int64_t>(i);
    two[2 * i + 1] = -static_cast<std::int64_t>(i % 7);
  }
  std::map<std::pair<std::int64_t, std::int64_t>, std::array<std::int64_t, 3>> sums;
  for (std::size_t i = 0; i < one.size(); ++i) {
    auto& sum = sums[{edges.dst[i], edges.src[i]}];
    sum[0] += static_cast<std::int64_t>(one[i]);
    sum[1] += two[2 * i];
    sum[2] += two[2 * i + 1];
  }
  const Scratch dir;
  CscOptions options;
  options.num_src = options.num_dst = 20;
  options.coalesce = Coalesce::kSum;
  options.columns = {{"one", find_dtype("float32"), {}, {}}, {"two", find_dtype("int64"), {2}, {}}};
  options.max_edges = one.size();
  CscBuilder builder(options, {1 << 20, dir / "", 2}, nullptr, nullptr);
  EdgeSlab slab = slab_of(edges);
  slab.columns = {reinterpret_cast<const Byte*>(one.data()),
                  reinterpret_cast<const Byte*>(two.data())};
  builder.append(slab);
  builder.finish({dir / "t.gl", dir / "id.gd", {dir / "one.gd", dir / "two.gd"}},
                 [](std::uint64_t, std::uint64_t) {});
  const auto topology = Topology::open(dir / "t.gl");
  const auto ones = Column::open(dir / "one.gd"), twos = Column::open(dir / "two.gd");
  const auto one_map = ones->map(MapMode::kReadOnly), two_map = twos->map(MapMode::kReadOnly);
  const auto* const sources = static_cast<const std::uint32_t*>(topology->indices());
  const auto* const a = reinterpret_cast<const float*>(one_map->data() + ones->data_offset());
  const auto* const b =
      reinterpret_cast<const std::int64_t*>(two_map->data() + twos->data_offset());
  CHECK(topology->num_edges() == sums.size());
  bool same = true;
  for (std::int64_t dst = 0; dst < 20; ++dst) {
    for (auto slot = topology->indptr()[dst]; slot < topology->indptr()[dst + 1]; ++slot) {
      const auto& sum = sums[{dst, sources[slot]}];
      same &= static_cast<std::int64_t>(a[slot]) == sum[0] && b[2 * slot] == sum[1] &&
              b[2 * slot + 1] == sum[2];
    }
  }
  CHECK(same);
}

TEST(nobody_need_know_which_nodes_have_edges) {
  const Edges edges = random_edges(100, 5'000, 0.5);
  for (const bool undirected : {false, true}) {
    const Scratch dir;
    CscOptions options;
    options.num_src = options.num_dst = 100;
    options.undirected = undirected;
    const CscStatistics marked = build(dir, edges, options, 1 << 20, 2, "a");
    const CscStatistics found = build(dir, edges, options, 1 << 20, 2, "b", false);
    CHECK(found.num_edges == marked.num_edges && found.input.edges == edges.src.size());
  }
}

TEST(every_neighbourhood_is_in_the_order_of_its_sources_times) {
  const Edges edges = random_edges(50, 3'000, 0.2);
  std::vector<std::int64_t> times(50);
  for (std::size_t i = 0; i < times.size(); ++i) times[i] = static_cast<std::int64_t>(i * 7 % 11);
  auto [indptr, order] = sort_by_destination(edges.src, edges.dst, 50, 50);
  const auto time = [&](std::int64_t edge) {
    return times[static_cast<std::size_t>(edges.src[static_cast<std::size_t>(edge)])];
  };
  const auto bounds = indptr.span();
  for (std::size_t v = 0; v + 1 < bounds.size(); ++v) {
    std::stable_sort(order.data() + bounds[v], order.data() + bounds[v + 1],
                     [&](std::int64_t a, std::int64_t b) { return time(a) < time(b); });
  }
  for (const std::uint64_t memory : {1ULL << 12, 1ULL << 24}) {
    const Scratch dir;
    CscOptions options;
    options.num_src = options.num_dst = 50;
    options.source_times = times;
    build(dir, edges, options, memory, 2, "t");
    const auto topology = Topology::open(dir / "t.gl");
    const auto* const sources = static_cast<const std::uint32_t*>(topology->indices());
    bool same = true;
    for (std::int64_t slot = 0; slot < order.size(); ++slot) {
      same &= sources[slot] == edges.src[static_cast<std::size_t>(order.data()[slot])];
    }
    CHECK(same);
  }
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
      CHECK(verify_blocks(dir / "t.gl", 0, UINT64_MAX, 1).empty());
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
