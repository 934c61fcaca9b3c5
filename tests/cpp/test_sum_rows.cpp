// gather/sum_rows and the plans that use it: sums over in-edges are those of a plain loop over
// decoded rows, from memory and from paged rows, and with any number of threads.
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "check.h"
#include "gather/gather.h"
#include "gather/sum_rows.h"
#include "pipeline_support.h"
#include "scratch.h"

using namespace gz;
using namespace gz::test;

namespace {

using Ids = std::vector<std::int64_t>;

// Rows of codes in memory, in two places where `split` says so.
struct Codes {
  Codes(std::mt19937_64& random, std::optional<Encoding> encoding, std::int64_t rows,
        std::int64_t items)
      : num_rows(rows), items(items) {
    const std::int64_t bytes = encoding ? item_bytes(*encoding) : 4;
    stride = items * bytes;
    for (std::int64_t i = 0; i < rows * items; ++i) {
      const float value = static_cast<float>(random() % 2000) / 7.0F - 100;
      if (!encoding) {
        push(value);
      } else if (*encoding == Encoding::kInt8) {
        push(static_cast<std::int8_t>(random() % 256));
      } else if (*encoding == Encoding::kFloat16) {
        push(static_cast<std::uint16_t>(0x3000 + random() % 0x1800));
      } else {
        push(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16));
      }
    }
    for (std::int64_t i = 0; i < items; ++i) {
      scale.push_back(static_cast<float>(random() % 100) / 31.0F);
      zero_point.push_back(static_cast<float>(random() % 100) / 3.0F - 15);
    }
    table = {data.data(), rows, items * 4, stride};
    if (encoding) {
      table.encoding = &kernels(*encoding);
      table.scale = scale.data();
      table.zero_point = zero_point.data();
    }
  }

  template <class T>
  void push(T value) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(&value);
    data.insert(data.end(), bytes, bytes + sizeof value);
  }
  void split_at(std::int64_t row) {
    table.split = row;
    table.rest = data.data() + row * stride;
  }
  // By a loop, each row decoded by itself.
  std::vector<float> sums(const Ids& index, const Ids& src, const Ids& dst, std::int64_t num_dst,
                          bool is_mean) const {
    const auto width = static_cast<std::size_t>(items);
    std::vector<float> out(static_cast<std::size_t>(num_dst) * width), row(width);
    Ids degree(static_cast<std::size_t>(num_dst));
    for (std::size_t e = 0; e < src.size(); ++e) {
      const std::int64_t from = index[static_cast<std::size_t>(src[e])];
      gather_rows(table, {&from, 1}, reinterpret_cast<std::byte*>(row.data()), 1);
      for (std::size_t i = 0; i < width; ++i)
        out[static_cast<std::size_t>(dst[e]) * width + i] += row[i];
      ++degree[static_cast<std::size_t>(dst[e])];
    }
    for (std::size_t i = 0; is_mean && i < out.size(); ++i) {
      if (degree[i / width] > 0) out[i] /= static_cast<float>(degree[i / width]);
    }
    return out;
  }

  std::int64_t num_rows, items, stride;
  std::vector<std::byte> data;
  std::vector<float> scale, zero_point;
  RowTable table{};
};

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

TEST(sums_ahead_are_those_of_decoded_rows) {
  std::mt19937_64 random(21);
  constexpr std::optional<Encoding> kKinds[] = {std::nullopt, Encoding::kFloat16,
                                                Encoding::kBFloat16, Encoding::kInt8};
  for (int round = 0; round < 60; ++round) {
    const auto items = static_cast<std::int64_t>(random() % 90);
    Codes codes(random, kKinds[round % 4], static_cast<std::int64_t>(1 + random() % 50), items);
    if (random() % 2 == 0) {
      codes.split_at(
          static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(codes.num_rows)));
    }
    Ids index, src, dst;
    for (std::uint64_t i = 0, n = 1 + random() % 80; i < n; ++i) {
      index.push_back(
          static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(codes.num_rows)));
    }
    const auto num_dst = static_cast<std::int64_t>(random() % (index.size() + 1));
    for (std::int64_t d = 0; d < num_dst; ++d) {
      const std::uint64_t degree = random() % 5 == 0 ? random() % 300 : random() % 4;
      for (std::uint64_t k = 0; k < degree; ++k) {
        src.push_back(static_cast<std::int64_t>(random() % index.size()));
        dst.push_back(d);
      }
    }
    const bool is_mean = random() % 2 == 0;
    GatherPlan plan;
    plan.num_lists = 2;
    plan.columns.push_back({0, codes.table});
    plan.columns.push_back(sum_of(codes.table, is_mean));
    plan.columns.push_back({0, codes.table});
    plan.columns.back().inner_of = 0;
    CHECK(plan.needs_hops());
    const std::span<const std::int64_t> lists[] = {index, {}};
    const SampledHops hops{{num_dst}, {{src, dst}}};
    for (const int threads : {1, 3}) {
      const Gathered found = gather(plan, lists, threads, {}, hops);
      const std::vector<float> expected = codes.sums(index, src, dst, num_dst, is_mean);
      CHECK(floats_of(found.columns[1].rows) == expected);
      const std::vector<float> all = floats_of(found.columns[0].rows);
      CHECK(floats_of(found.columns[2].rows) ==
            std::vector<float>(all.begin(), all.begin() + num_dst * items));
    }
  }
}

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

TEST(batches_that_read_have_the_sums_of_those_in_memory) {
  const Scratch scratch;
  std::mt19937_64 random(22);
  constexpr std::int64_t kRows = 600, kItems = 5;
  const Codes codes(random, Encoding::kInt8, kRows, kItems);
  std::ofstream(scratch / "codes", std::ios::binary)
      .write(reinterpret_cast<const char*>(codes.data.data()),
             static_cast<std::streamsize>(codes.data.size()));
  const Ring ring(kRows, 8);
  const NeighborSampler sampler = ring.sampler();
  const auto recipe = [&](bool is_paged) {
    auto plan = std::make_shared<GatherPlan>();
    plan->num_lists = 2;
    plan->columns.push_back({0, codes.table});
    plan->columns.back().inner_of = 0;
    plan->columns.push_back(sum_of(codes.table, true));
    if (is_paged) {
      ColumnFile file{DirectFile::open(scratch / "codes", true), {}};
      file.layout = {0, kRows, kItems, kItems, file.file->size()};
      const DiskGatherOptions options{{ReaderKind::kAuto, 4}, 1 << 16};
      plan->paged.push_back({0, std::make_shared<PagedRows>(ResidentRows(kRows, 0, 70), 40, file,
                                                            std::make_shared<DiskGather>(options),
                                                            ReadLimits{64, 4096})});
      plan->windows = std::make_shared<WindowRoom>(WindowLimits{4, 1 << 20});
      for (GatherPlan::Source& source : plan->columns) source.paged = 0;
    }
    return recipe_of(sampler, plan);
  };
  const auto in_memory = recipe(false), paged = recipe(true);
  Batches epoch(2, 1 << 20);
  for (std::uint64_t key = 0; key < 20; ++key) epoch.add(paged, batch_request(key));
  epoch.flush();
  for (std::uint64_t key = 0; key < 20; ++key) {
    const Batch expected = batch_of(*in_memory, key);
    const auto batch = epoch.get(std::chrono::seconds(60));
    CHECK(batch != nullptr && same(*batch, expected));
    const auto& counts = expected.num_sampled_nodes[0];
    const std::int64_t inner = counts[0] + counts[1];
    CHECK(expected.gathered.columns[0].rows.size() == inner * kItems * 4);
    const std::span<const std::int64_t> both = expected.edges[0].index.span();
    const auto half = static_cast<std::ptrdiff_t>(both.size() / 2);
    const std::span<const std::int64_t> nodes = expected.nodes[0].span();
    CHECK(floats_of(batch->gathered.columns[1].rows) ==
          codes.sums({nodes.begin(), nodes.end()}, {both.begin(), both.begin() + half},
                     {both.begin() + half, both.end()}, inner, true));
  }
}
