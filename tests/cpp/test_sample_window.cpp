// sampling/sample_window: batches whose topology lies in a file, against the same ones over a map.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "check.h"
#include "sampling/hgt_sampler.h"
#include "sampling/sample_window.h"
#include "sampling_support.h"

using namespace gz;
using namespace gz::test;

namespace {

constexpr std::int64_t kPlenty = std::int64_t{1} << 40;
// Sources of one type, too many for 32-bit ids; no test walks to them.
constexpr std::int64_t kWide = (std::int64_t{1} << 32) + 7;

struct EdgeTypeSpec {
  int src_type, dst_type;
};
const std::vector<std::int64_t> kNumNodes{700, 90, kWide};
const std::vector<EdgeTypeSpec> kEdgeTypes{{0, 0}, {1, 0}, {2, 0}, {0, 1}, {1, 1}};

// Random graph over several types, one of them without edges, with times, weights (many 0) and
// ranks in another order than slots.
struct Files {
  explicit Files(std::uint64_t seed) : random(seed) {
    for (std::size_t e = 0; e < kEdgeTypes.size(); ++e) {
      const auto num_src =
          static_cast<std::uint64_t>(kNumNodes[static_cast<std::size_t>(kEdgeTypes[e].src_type)]);
      const auto num_dst =
          static_cast<std::uint64_t>(kNumNodes[static_cast<std::size_t>(kEdgeTypes[e].dst_type)]);
      std::vector<std::int64_t> indptr{0}, indices, destinations, slots, times;
      std::vector<std::uint64_t> sums;
      for (std::uint64_t v = 0; v < num_dst; ++v) {
        const std::uint64_t degree = e == 4 ? 0 : v % 50 == 3 ? 90 : random() % 12;
        const auto first = std::ssize(indices);
        for (std::uint64_t i = 0; i < degree; ++i) {
          indices.push_back(static_cast<std::int64_t>(random() % num_src));
          destinations.push_back(static_cast<std::int64_t>(v));
          slots.push_back(first + static_cast<std::int64_t>(i));
          times.push_back(static_cast<std::int64_t>(random() % 100));
          sums.push_back((sums.empty() ? 0 : sums.back()) + random() % 3);
        }
        std::shuffle(slots.begin() + first, slots.end(), random);
        std::sort(times.begin() + first, times.end());
        indptr.push_back(std::ssize(indices));
      }
      TopologyWriter writer(path(e), num_src, num_dst);
      writer.append_indptr(indptr.data(), indptr.size());
      if (writer.index_bytes() == 8) {
        writer.append_indices(indices.data(), indices.size());
      } else {
        const std::vector<std::uint32_t> narrow(indices.begin(), indices.end());
        writer.append_indices(narrow.data(), narrow.size());
      }
      writer.finish();
      all_src.push_back(std::move(indices));
      all_dst.push_back(std::move(destinations));
      all_slots.push_back(std::move(slots));
      all_times.push_back(std::move(times));
      all_sums.push_back(std::move(sums));
    }
  }

  std::string path(std::size_t e) const { return dir / (std::to_string(e) + ".gl"); }

  EdgeOrder order(std::size_t e, bool timed, bool weighted) const {
    EdgeOrder made;
    if (timed || weighted) made.slots = all_slots[e].data();
    if (timed) made.times = all_times[e].data();
    if (weighted) made.cumulative = all_sums[e].data();
    return made;
  }

  Scratch dir;
  std::mt19937_64 random;
  std::vector<std::vector<std::int64_t>> all_src, all_dst, all_slots, all_times;
  std::vector<std::vector<std::uint64_t>> all_sums;
};

std::shared_ptr<PagedRows> pages_of(const Topology& file, ResidentRows resident,
                                    std::int64_t frames) {
  const auto reader = std::make_shared<DiskGather>(DiskGatherOptions{{ReaderKind::kPool, 8}});
  return std::make_shared<PagedRows>(std::move(resident), frames, ColumnFile::of_indices(file),
                                     reader, ReadLimits{256, 8192, 1});
}

// `share` of four pages stays in memory, or as many as are used lately.
std::shared_ptr<PagedRows> pages_of(const Topology& file, int group_bits, std::int64_t share,
                                    bool lately = false) {
  const auto rows = static_cast<std::int64_t>(file.num_edges());
  const std::int64_t kept = count_groups(rows, group_bits) * share / 4;
  if (lately) return pages_of(file, ResidentRows(rows, group_bits, 0), kept);
  return pages_of(file, ResidentRows(rows, group_bits, kept), 0);
}

// Edge types of the files: mapped, or paged where `paged_types` has a bit for them.
std::vector<SampledEdgeType> edge_types(const Files& files, bool timed, bool weighted,
                                        unsigned paged_types = 0, int group_bits = 0,
                                        std::int64_t share = 0) {
  std::vector<SampledEdgeType> types;
  for (std::size_t e = 0; e < kEdgeTypes.size(); ++e) {
    const auto file = Topology::open(files.path(e));
    const bool paged = (paged_types >> e & 1) != 0;
    Csc csc =
        csc_of(file, paged ? pages_of(*file, group_bits, share, group_bits % 2 == 0) : nullptr);
    types.push_back({kEdgeTypes[e].src_type, kEdgeTypes[e].dst_type, std::move(csc),
                     files.order(e, timed, weighted)});
  }
  return types;
}

Seen all_of(const Sample& sample) {
  Seen all = everything(sample);
  for (const auto& trees : sample.trees) all.emplace_back(trees.span().begin(), trees.span().end());
  return all;
}

struct Mode {
  std::vector<std::int64_t> fanout;
  bool timed = false, weighted = false, replace = false, disjoint = false, last = false,
       induced = false;
};

const std::vector<Mode> kModes{
    {.fanout = {4, 3}},
    {.fanout = {20, 0, 5}},
    {.fanout = {-1, 2}},
    {.fanout = {3, 3}, .replace = true},
    {.fanout = {3, 2}, .disjoint = true},
    {.fanout = {4, 3}, .weighted = true},
    {.fanout = {4, 3}, .weighted = true, .replace = true},
    {.fanout = {4, 3}, .timed = true, .disjoint = true},
    {.fanout = {4, -1}, .timed = true, .weighted = true, .disjoint = true, .last = true},
    {.fanout = {3, 2}, .induced = true},
    {.fanout = {3, 2}, .timed = true, .disjoint = true, .induced = true},
};

// Random seeds, kept where requests look. Every other request is without a third of two types'
// edges, and without pairs that are no edges.
struct Requests {
  Requests(Files& files, std::size_t count, const Mode& mode) : nodes(count) {
    std::mt19937_64& random = files.random;
    times.resize(count);
    for (std::size_t e = 0; e < 2; ++e) {
      for (std::size_t i = e; i < files.all_src[e].size(); i += 61) {
        src[e].push_back(files.all_src[e][i]);
        dst[e].push_back(files.all_dst[e][i]);
        src[e].push_back(static_cast<std::int64_t>(i) % 90);
        dst[e].push_back(files.all_dst[e][i]);
        for (int each = 0; each < 2; ++each) {
          excluded_times[e].push_back(static_cast<std::int64_t>(random() % 100));
        }
      }
    }
    for (std::size_t k = 0; k < count; ++k) {
      for (std::size_t i = 0; i < 1 + random() % 40; ++i) {
        nodes[k].push_back(static_cast<std::int64_t>(random() % 700));
        times[k].push_back(static_cast<std::int64_t>(random() % 110));
      }
      SampleRequest made;
      made.seeds = {{0, nodes[k]}};
      if (mode.timed) made.seeds[0].times = times[k];
      made.num_neighbors.assign(kEdgeTypes.size(), mode.fanout);
      made.replace = mode.replace;
      made.disjoint = mode.disjoint;
      made.last = mode.last;
      made.induced = mode.induced;
      if (k % 2 == 1) {
        for (const std::size_t e : {std::size_t{0}, std::size_t{1}}) {
          made.excluded.push_back({static_cast<int>(e), src[e], dst[e]});
          if (mode.timed && e == 0) made.excluded.back().times = excluded_times[e];
        }
      }
      made.key = random();
      made.threads = 1 + static_cast<int>(random() % 2);
      all.push_back(std::move(made));
    }
  }

  std::vector<std::vector<std::int64_t>> nodes, times;
  std::vector<std::int64_t> src[2], dst[2], excluded_times[2];
  std::vector<SampleRequest> all;
};

std::vector<SamplingRun> begin_all(const NeighborSampler& sampler,
                                   const std::vector<SampleRequest>& requests) {
  std::vector<SamplingRun> runs;
  for (const SampleRequest& request : requests) runs.push_back(sampler.begin(request));
  return runs;
}

// A ring, of which no page is in memory.
struct PagedRing {
  PagedRing(std::int64_t nodes, std::int64_t degree)
      : ring(nodes, degree),
        file(Topology::open(ring.path)),
        pages(pages_of(*file, 10, 0)),
        sampler({{nodes}, {{0, 0, csc_of(file, pages)}}}) {}

  Ring ring;
  std::shared_ptr<const Topology> file;
  std::shared_ptr<PagedRows> pages;
  NeighborSampler sampler;
};

// A window with what it gave.
struct Sampled : SampleWindow {
  std::vector<Sample> samples;  // [run]
};

Sampled sample_all(std::span<SamplingRun> runs, std::int64_t max_bytes, std::stop_token stop = {}) {
  Sampled all;
  all.samples.resize(runs.size());
  const auto take = [&](std::size_t k, Sample sample) { all.samples[k] = std::move(sample); };
  static_cast<SampleWindow&>(all) = sample_window(runs, max_bytes, take, std::move(stop));
  return all;
}

}  // namespace

TEST(windows_over_files_are_the_samples_over_maps) {
  Files files(11);
  for (const Mode& mode : kModes) {
    const NeighborSampler mapped({kNumNodes, edge_types(files, mode.timed, mode.weighted)});
    CHECK(!mapped.reads());
    for (std::size_t count = 1; count <= 5; ++count) {
      const unsigned types = count == 1 ? 31 : static_cast<unsigned>(1 + files.random() % 31);
      const auto share = static_cast<std::int64_t>(count == 1 ? 0 : files.random() % 5);
      const NeighborSampler paged({kNumNodes, edge_types(files, mode.timed, mode.weighted, types,
                                                         static_cast<int>(3 + count % 3), share)});
      CHECK(paged.reads());
      for (const std::int64_t room : {kPlenty, std::int64_t{700}}) {
        const Requests requests(files, count, mode);
        std::vector<SamplingRun> runs = begin_all(paged, requests.all);
        const Sampled window = sample_all(runs, room);
        bool same = !window.stopped && window.samples.size() == count;
        for (std::size_t k = 0; k < count; ++k) {
          const Seen expected = all_of(sample_of(mapped, requests.all[k]));
          same = same && !window.errors[k] && all_of(window.samples[k]) == expected &&
                 all_of(sample_of(paged, requests.all[k])) == expected;
        }
        CHECK(same);
        CHECK(window.read.hits <= window.read.rows);
        if (types == 31 && share == 0) {
          CHECK(window.read.rows > 0 && window.read.hits == 0 && window.read.reads > 0);
        }
      }
    }
  }
}

// Neighbours that several batches want are read once for all of them.
TEST(a_window_reads_what_its_batches_share_once) {
  const PagedRing paged(20'000, 10);
  const std::vector<std::int64_t> seeds{100, 5'000, 12'000};
  const std::vector<SampleRequest> requests(4, request(seeds, {2, 2}));
  std::vector<SamplingRun> one = begin_all(paged.sampler, {requests.front()});
  std::vector<SamplingRun> four = begin_all(paged.sampler, requests);
  const ReadStats alone = sample_all(one, kPlenty).read;
  const ReadStats together = sample_all(four, kPlenty).read;
  CHECK(together.rows == 4 * alone.rows && together.reads == alone.reads);
  CHECK(together.bytes == alone.bytes && together.useful_bytes == alone.useful_bytes);
}

TEST(pages_that_stay_in_memory_are_read_once) {
  const Ring ring(20'000, 10);
  const auto file = Topology::open(ring.path);
  const auto pages = pages_of(*file, 10, 4);
  const NeighborSampler sampler({{20'000}, {{0, 0, csc_of(file, pages)}}});
  load(*pages);
  const std::vector<std::int64_t> seeds{100, 5'000, 12'000};
  std::vector<SamplingRun> runs = begin_all(sampler, {request(seeds, {3, 3})});
  const Sampled window = sample_all(runs, kPlenty);
  CHECK(window.read.rows > 0 && window.read.hits == window.read.rows && window.read.reads == 0);
}

// A neighbour that cannot be read fails the batches that drew it, no others.
TEST(a_topology_cut_short_fails_the_batches_concerned) {
  if (needs("posix", kCannotBeCut)) return;
  const PagedRing paged(100'000, 5);
  const std::vector<std::int64_t> low{5, 40'000}, high{99'000}, other{7}, across{30'000, 99'999};
  const std::vector<SampleRequest> requests{request(low, {2, 2}), request(high, {2, 2}),
                                            request(other, {2, 2}), request(across, {2, 2})};
  std::vector<Seen> expected;
  for (const auto& request : requests)
    expected.push_back(all_of(sample_of(paged.sampler, request)));
  std::filesystem::resize_file(paged.ring.path, paged.file->indices_offset() + 90'000 * 5 * 4);
  for (const std::int64_t room : {kPlenty, std::int64_t{0}}) {
    std::vector<SamplingRun> runs = begin_all(paged.sampler, requests);
    const Sampled window = sample_all(runs, room);
    CHECK(!window.errors[0] && all_of(window.samples[0]) == expected[0]);
    CHECK(!window.errors[2] && all_of(window.samples[2]) == expected[2]);
    for (const std::size_t lost : {1, 3}) {
      CHECK_THROWS(OsError, "of '" + paged.ring.path + "'",
                   std::rethrow_exception(window.errors[lost]));
    }
  }
  CHECK_THROWS(OsError, "the file was truncated: cannot read row",
               sample_of(paged.sampler, requests[1]));
  // indptr is mapped: without it nothing can be drawn, and the process lives.
  std::filesystem::resize_file(paged.ring.path, kHeaderBytes);
  std::vector<SamplingRun> runs = begin_all(paged.sampler, requests);
  for (const auto& error : sample_all(runs, kPlenty).errors) {
    CHECK_THROWS(OsError, "was truncated", std::rethrow_exception(error));
  }
}

TEST(errors_of_one_batch_do_not_reach_others) {
  const PagedRing paged(1000, 10);
  const std::vector<std::int64_t> good{1, 2}, beyond{1000};
  std::vector<SampleRequest> requests{request(good, {2, 2}), request(beyond, {2, 2}),
                                      request(good, {2, 2})};
  const Seen expected = all_of(sample_of(paged.sampler, requests[0]));
  const auto check = [&](const NeighborSampler& sampler) {
    std::vector<SamplingRun> runs = begin_all(sampler, requests);
    const Sampled window = sample_all(runs, kPlenty);
    CHECK(!window.errors[0] && !window.errors[2]);
    CHECK(all_of(window.samples[0]) == expected && all_of(window.samples[2]) == expected);
    return window.errors[1];
  };
  CHECK_THROWS(std::out_of_range, "seed 0: found node 1000",
               std::rethrow_exception(check(paged.sampler)));

  // Ranks that lead out of the file.
  const std::vector<std::int64_t> far{900};
  requests[1] = request(far, {2, 2});
  std::vector<std::int64_t> slots(10'000);
  std::iota(slots.begin(), slots.end(), 0);
  std::fill_n(slots.begin() + 9'000, 10, 10'000);
  EdgeOrder order;
  order.slots = slots.data();
  const NeighborSampler ordered({{1000}, {{0, 0, csc_of(paged.file, paged.pages), order}}});
  CHECK_THROWS(std::out_of_range, "found row 10000, expected 0 <= row < 10000",
               std::rethrow_exception(check(ordered)));

  // Neighbours that are no nodes.
  overwrite(paged.ring.path, paged.file->indices_offset() + 9'000 * 4, std::string(40, '\xFF'));
  CHECK_THROWS(FormatError, "ring.gl: indices: found node 4294967295",
               std::rethrow_exception(check(paged.sampler)));
  requests[1].induced = true;
  CHECK_THROWS(FormatError, "ring.gl: indices: found node 4294967295",
               std::rethrow_exception(check(paged.sampler)));
  overwrite(paged.ring.path, kHeaderBytes + 8 * 900, std::string(8, '\x7F'));
  CHECK_THROWS(FormatError, "ring.gl: indptr[900]", std::rethrow_exception(check(paged.sampler)));
}

TEST(a_window_stops) {
  const PagedRing paged(1000, 10);
  const std::vector<std::int64_t> seeds{1, 2};
  std::vector<SamplingRun> runs = begin_all(paged.sampler, {request(seeds, {2, 2})});
  std::stop_source stop;
  stop.request_stop();
  CHECK(sample_all(runs, kPlenty, stop.get_token()).stopped);
}

TEST(pages_of_something_else_are_refused) {
  const PagedRing paged(1000, 10);
  const Ring other(1000, 11);
  CHECK_THROWS(std::invalid_argument, "found 10000 rows of 4 bytes, expected 11000 of 4",
               csc_of(Topology::open(other.path), paged.pages));
}

TEST(hgt_over_files_is_hgt_over_maps) {
  Files files(13);
  const HgtSampler mapped({kNumNodes, edge_types(files, false, false)});
  for (std::size_t count = 1; count <= 4; ++count) {
    const unsigned types = count == 1 ? 31 : static_cast<unsigned>(files.random() % 31 | 1);
    const HgtSampler paged({kNumNodes, edge_types(files, false, false, types, 4,
                                                  static_cast<std::int64_t>(count) - 1)});
    CHECK(paged.reads() && !mapped.reads());
    const Requests seeds(files, count, Mode{});
    std::vector<SamplingRun> runs;
    std::vector<HgtRequest> requests;
    for (const SampleRequest& request : seeds.all) {
      requests.push_back({{request.seeds, request.key}, {{30, 20}, {9, 5}, {4, 4}}, 2});
      runs.push_back(paged.begin(requests.back()));
    }
    const Sampled window = sample_all(runs, kPlenty);
    bool same = true;
    for (std::size_t k = 0; k < count; ++k) {
      const Seen expected = all_of(sample_of(mapped, requests[k]));
      same = same && !window.errors[k] && all_of(window.samples[k]) == expected &&
             all_of(sample_of(paged, requests[k])) == expected;
    }
    CHECK(same && window.read.rows > 0);
  }
}
