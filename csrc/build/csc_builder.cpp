#include "build/csc_builder.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "arrays/parallel.h"
#include "base/chunk_sizes.h"
#include "base/errors.h"
#include "build/csc_files.h"
#include "build/neighborhoods.h"
#include "build/partition.h"

namespace gz {
namespace {

constexpr std::uint64_t kMaxBuckets = 2048;

void check(const CscOptions& options) {
  if (options.bipartite && (options.undirected || options.self_loops == SelfLoops::kAdd)) {
    throw invalid("undirected and self_loops='add' need one node type at both ends");
  }
  if (!options.bipartite && options.num_src != options.num_dst) {
    throw invalid("found ", options.num_src, " source and ", options.num_dst,
                  " destination nodes, expected as many of one type");
  }
  if (!options.edge_ids && !options.columns.empty()) {
    throw invalid("edge_ids=False: found the edge attribute '", options.columns.front().name,
                  "', whose rows are numbered by edge id, expected none");
  }
  if (options.time_column) {
    const PayloadColumn& column = options.columns[*options.time_column];
    if (!EdgeTimes::can_be(*column.dtype) || column.num_items() != 1) {
      throw invalid("time attribute '", column.name, "': found ", column.num_items(), " ",
                    column.dtype->name, " an edge, expected one integer or float");
    }
  }
}

// A number that records are sorted by.
using Key = std::function<std::uint64_t(const Byte* record)>;

// Records that lie one after another, as a source for partition().
class RecordBlock final : public RecordSource {
 public:
  RecordBlock(const Key& key, const Byte* records, std::uint64_t count, std::uint32_t record_bytes)
      : key_(key),
        records_(records),
        count_(static_cast<std::int64_t>(count)),
        record_bytes_(record_bytes) {}
  std::int64_t num_items() const override { return count_; }
  std::int64_t keys(int, std::int64_t begin, std::int64_t end, std::uint64_t* keys) override {
    for (std::int64_t i = begin; i < end; ++i) *keys++ = key_(records(0, i, end, nullptr));
    return end - begin;
  }
  const Byte* records(int, std::int64_t begin, std::int64_t, Byte*) override {
    return records_ + begin * record_bytes_;
  }

 private:
  const Key& key_;
  const Byte* records_;
  std::int64_t count_, record_bytes_;
};

}  // namespace

struct CscBuilder::State {
  State(CscOptions given, const BuildRoom& room, std::shared_ptr<NodeMarks> of_src,
        std::shared_ptr<NodeMarks> of_dst)
      : plan(std::move(given)),
        threads(num_threads(room.threads)),
        src_marks(std::move(of_src)),
        dst_marks(std::move(of_dst)) {
    check(options);
    space.directory = room.directory;
    // Half for what waits, an eighth each for a run that is being made, what it is made from,
    // sorting and what has been sorted.
    space.keep_bytes = rank_bytes = room.memory / 2;
    const std::uint64_t share = room.memory / 8, least_run = 16 * std::uint64_t{layout.size()};
    space.run_bytes = std::clamp(share, least_run, std::max(chunk_sizes.run_bytes, least_run));
    space.segment_bytes =
        std::clamp<std::uint64_t>(room.memory >> 12, 64, chunk_sizes.segment_bytes);
    sort_bytes = share / static_cast<std::uint64_t>(threads);
    most_slab_bytes = std::min(share, chunk_sizes.slab_bytes);
    const std::uint64_t record =
        std::max(NeighborhoodSorter::bytes_per_record(plan), Slab::edge_bytes(plan) + 8);
    hub_records = std::max<std::uint64_t>(most_slab_bytes / record, 16);
    for (int t = 0; t < threads; ++t) sorters.emplace_back(plan);
    // Without destinations, the first edge is refused.
    const KeyRange range = make_range(0, std::max<std::uint64_t>(options.num_dst, 1) - 1);
    plan.packed = PackedEdges::of(options, range.shift);
    waiting.emplace(space, range, plan.waiting_bytes());
  }

  KeyRange make_range(std::uint64_t lo, std::uint64_t hi) const {
    const std::uint64_t records = options.max_edges * (options.undirected ? 2 : 1);
    const std::uint64_t buckets =
        std::clamp<std::uint64_t>(space.run_bytes / space.segment_bytes, 2, kMaxBuckets);
    return {lo, hi,
            std::min(buckets, std::max<std::uint64_t>(records / chunk_sizes.bucket_records, 16))};
  }

  void append(const EdgeSlab& given) {
    const auto step = static_cast<std::int64_t>(space.run_bytes / plan.waiting_bytes() /
                                                (options.undirected ? 2 : 1));
    for (std::int64_t begin = given.begin; begin < given.end; begin += step) {
      EdgeSlab part = given;
      part.begin = begin;
      part.end = std::min(given.end, begin + step);
      const auto size = static_cast<std::uint64_t>(part.end - part.begin);
      if (counts.input + size > options.max_edges) {
        throw invalid("edges: found more than the ", options.max_edges, " that were declared");
      }
      partition(*edge_source(plan, src_marks.get(), part, counts, threads), threads, *waiting);
      counts.input += size;
    }
  }

  CscStatistics finish(const CscPaths& paths, const Checkpoint& called) {
    checkpoint = &called;
    files.emplace(plan, paths, counts.edges, counts.reverses, space, dst_marks.get());
    slab.emplace(plan);
    if (options.num_dst > 0) write_destinations(*waiting);
    waiting.reset();
    slab.reset();
    CscStatistics found;
    found.input = counts;
    found.result = hub_counts;
    for (const NeighborhoodSorter& sorter : sorters) found.result += sorter.counts;
    sorters.clear();
    files->finish(rank_bytes, threads, called);
    found.num_edges = files->num_edges();
    found.ids_are_slots = files->ids_are_slots();
    for (const double share : {0.0, 0.25, 0.5, 0.75, 0.99, 1.0}) {
      found.degree_quantiles.push_back(files->degrees().quantile(share));
    }
    found.scratch_bytes = space.written;
    found.scratch_peak = space.peak;
    return found;
  }

  void advance(std::uint64_t records) {
    done += records;
    (*checkpoint)(done, counts.edges + counts.reverses);
  }

  // Edges of a range, at most, and what they take in a slab.
  std::uint64_t max_edges(const Runs& runs, const DestinationRange& range) const noexcept {
    const bool loops = options.self_loops == SelfLoops::kAdd;
    return runs.num_records(range.bucket) + (loops ? range.num_dst() : 0);
  }
  std::uint64_t slab_bytes(const Runs& runs, const DestinationRange& range) const noexcept {
    return max_edges(runs, range) * Slab::edge_bytes(plan) + range.num_dst() * 8;
  }
  bool fits(const Runs& runs, const DestinationRange& range) const noexcept {
    const std::uint64_t bytes =
        runs.num_records(range.bucket) * NeighborhoodSorter::bytes_per_record(plan) +
        range.num_dst() * NeighborhoodSorter::bytes_per_destination(plan);
    return bytes <= sort_bytes && slab_bytes(runs, range) <= most_slab_bytes;
  }

  // All destinations of `runs`, in order.
  void write_destinations(Runs& runs) {
    std::vector<DestinationRange> batch;
    std::uint64_t bytes = 0;
    for (std::uint64_t bucket = 0; bucket < runs.range().num_buckets(); ++bucket) {
      const DestinationRange range{bucket, runs.range().first_key(bucket),
                                   runs.range().last_key(bucket)};
      const std::uint64_t more = slab_bytes(runs, range);
      const bool is_small = fits(runs, range);
      if (!is_small || bytes + more > most_slab_bytes) {
        write_batch(runs, batch);
        bytes = 0;
      }
      if (is_small) {
        batch.push_back(range);
        bytes += more;
        continue;
      }
      if (range.num_dst() > 1) {
        const Key dst = [&](const Byte* edge) {
          return plan.packed ? plan.packed->dst(edge, range.first_dst) : layout.dst(edge);
        };
        Runs finer = split(runs, bucket, dst, range.first_dst, range.last_dst);
        runs.done_with(bucket + 1);
        write_destinations(finer);
      } else if (plan.packed) {
        Runs records = unpacked(runs, range);
        runs.done_with(bucket + 1);
        write_hub(records, 0, range.first_dst);
      } else {
        write_hub(runs, bucket, range.first_dst);
        runs.done_with(bucket + 1);
      }
    }
    write_batch(runs, batch);
  }

  void write_batch(Runs& runs, std::vector<DestinationRange>& ranges) {
    if (ranges.empty()) return;
    const std::uint64_t first_dst = ranges.front().first_dst;
    std::vector<std::uint64_t> at;
    std::uint64_t edges = 0, records = 0;
    for (const DestinationRange& range : ranges) {
      at.push_back(edges);
      records += runs.num_records(range.bucket);
      edges += max_edges(runs, range);
    }
    slab->reset(edges, ranges.back().last_dst - first_dst + 1);
    slab->first_dst = first_dst;
    slab->parts.resize(ranges.size());
    const std::uint64_t last_bucket = ranges.back().bucket;
    const std::uint64_t ahead = last_bucket + ranges.size();
    if (last_bucket + 1 < runs.range().num_buckets()) {
      runs.will_read(last_bucket + 1, std::min(ahead, runs.range().num_buckets() - 1));
    }
    std::atomic<std::size_t> next{0};
    parallel_for(threads, 1, threads, [&](std::int64_t thread, std::int64_t) {
      NeighborhoodSorter& sorter = sorters[static_cast<std::size_t>(thread)];
      for (std::size_t i; (i = next.fetch_add(1)) < ranges.size();) {
        const std::uint64_t degrees_at = ranges[i].first_dst - first_dst;
        slab->parts[i] = {at[i], sorter.sort(runs, ranges[i], at[i], degrees_at, &*slab)};
      }
    });
    runs.done_with(last_bucket + 1);
    files->write(*slab, threads);
    ranges.clear();
    advance(records);
  }

  // The records of a bucket in their order, in blocks of at most `max_records`:
  // body(records, count).
  template <class Body>
  void each_block(const Runs& runs, std::uint64_t bucket, std::uint64_t max_records,
                  const Body& body) {
    const std::uint64_t size = std::min(max_records, runs.num_records(bucket));
    Buffer<Byte> block(static_cast<std::int64_t>(size * runs.record_bytes()) + PackedEdges::kSlack);
    Runs::Reader reader(runs, bucket);
    while (const std::uint64_t n = reader.next(block.data(), size)) {
      body(block.data(), n);
      advance(0);
    }
  }
  template <class Body>
  void each_block(const Runs& runs, std::uint64_t bucket, const Body& body) {
    each_block(runs, bucket, space.run_bytes / layout.size(), body);
  }

  void add_block(const Byte* records, std::uint64_t count, const Key& key, Runs& runs) {
    RecordBlock source(key, records, count, runs.record_bytes());
    partition(source, threads, runs);
  }

  // A bucket split by `key`; by default as finely as the keys that occur allow.
  Runs split(const Runs& runs, std::uint64_t bucket, const Key& key, std::uint64_t lo,
             std::uint64_t hi) {
    Runs finer(space, make_range(lo, hi), runs.record_bytes());
    each_block(runs, bucket, [&](const Byte* records, std::uint64_t count) {
      add_block(records, count, key, finer);
    });
    return finer;
  }
  Runs split(const Runs& runs, std::uint64_t bucket, const Key& key) {
    std::uint64_t lo = ~0ULL, hi = 0;
    each_block(runs, bucket, [&](const Byte* records, std::uint64_t count) {
      for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint64_t value = key(records + i * runs.record_bytes());
        lo = std::min(lo, value);
        hi = std::max(hi, value);
      }
    });
    return split(runs, bucket, key, lo, hi);
  }

  // The waiting edges of one node as records, in one bucket.
  Runs unpacked(const Runs& runs, const DestinationRange& range) {
    Runs records(space, {range.first_dst, range.last_dst, 1}, layout.size());
    Unpacker unpack(*plan.packed, layout, plan.numbering, range.first_dst);
    each_block(runs, range.bucket, [&](const Byte* edges, std::uint64_t count) {
      Buffer<Byte> block = records.make_records(static_cast<std::int64_t>(count * layout.size()));
      unpack(edges, count, block.data());
      records.add(std::move(block), {0, static_cast<std::uint32_t>(count)});
    });
    return records;
  }

  // Calls body(records) with the records of a bucket, ordered by `keys`, some at a time; records
  // that agree in all of them are in order already.
  template <class Body>
  void each_ordered(const Runs& runs, std::uint64_t bucket, std::span<const Key> keys,
                    const Body& body) {
    if (runs.num_records(bucket) > hub_records && !keys.empty()) {
      Runs finer = split(runs, bucket, keys[0]);
      // Records that agree in one key are ordered by the others.
      const auto finer_by = keys.subspan(finer.range().shift == 0 ? 1 : 0);
      for (std::uint64_t b = 0; b < finer.range().num_buckets(); ++b) {
        each_ordered(finer, b, finer_by, body);
        finer.done_with(b + 1);
      }
      return;
    }
    const auto others = keys.subspan(keys.empty() ? 0 : 1);
    std::vector<std::pair<std::uint64_t, const Byte*>> order;
    std::vector<const Byte*> records;
    each_block(runs, bucket, hub_records, [&](const Byte* block, std::uint64_t count) {
      order.clear();
      for (std::uint64_t i = 0; i < count; ++i) {
        const Byte* const record = block + i * layout.size();
        order.emplace_back(keys.empty() ? i : keys[0](record), record);
      }
      const auto before = [&](const auto& a, const auto& b) {
        if (a.first != b.first) return a.first < b.first;
        for (const Key& key : others) {
          const std::uint64_t left = key(a.second), right = key(b.second);
          if (left != right) return left < right;
        }
        return a.second < b.second;
      };
      if (!keys.empty()) std::ranges::sort(order, before);
      records.clear();
      for (const auto& [key, record] : order) records.push_back(record);
      body(records);
    });
  }

  // One node with more edges than can be sorted at once, which are a bucket of records.
  void write_hub(Runs& runs, std::uint64_t bucket, std::uint64_t dst) {
    const std::uint64_t before = files->num_edges(), num_records = runs.num_records(bucket);
    const Key src = [this](const Byte* record) { return layout.src(record); };
    const Key number = [this](const Byte* record) { return layout.number(record); };
    std::vector<Key> keys{src};
    if (options.undirected) keys.push_back(number);

    Runs merged(space, {dst, dst, 1}, layout.size());
    EdgeMerger merger(plan);
    Buffer<Byte> block;
    const auto put = [&](const Byte* record) {
      block.resize(block.size() + layout.size());
      std::memcpy(block.data() + block.size() - layout.size(), record, layout.size());
    };
    const auto add_merged = [&] {
      if (block.size() == 0) return;
      const auto count = static_cast<std::uint32_t>(block.size() / layout.size());
      merged.add(std::move(block), {0, count});
      block = merged.make_records(0);
    };
    std::uint64_t duplicates = 0, loops = 0, last = ~0ULL;
    each_ordered(runs, bucket, keys, [&](std::span<const Byte* const> records) {
      for (const Byte* const record : records) {
        const std::uint64_t from = layout.src(record);
        duplicates += std::exchange(last, from) == from;
        loops += !options.bipartite && from == dst;
        if (options.coalesce) merger.add(record, put);
      }
      add_merged();
    });
    merger.flush(put);
    add_merged();
    (options.coalesce ? hub_counts.merged : hub_counts.duplicates) += duplicates;
    hub_counts.loops += options.coalesce ? std::min<std::uint64_t>(loops, 1) : loops;

    Runs& kept = options.coalesce ? merged : runs;
    bucket = options.coalesce ? 0 : bucket;
    if (options.self_loops == SelfLoops::kAdd && loops == 0) {
      block.resize(layout.size());
      NeighborhoodSorter::make_loop(plan, dst, block.data());
      add_block(block.data(), 1, [dst](const Byte*) { return dst; }, kept);
      ++hub_counts.loops_added;
      ++hub_counts.loops;
    }
    keys.clear();
    if (plan.times.any()) keys.push_back([this](const Byte* record) { return plan.times(record); });
    // Merging leaves edges by source, and reverses lie between the edges of the input.
    if (options.coalesce || options.undirected) keys.push_back(number);
    each_ordered(kept, bucket, keys, [&](std::span<const Byte* const> records) {
      slab->reset(records.size(), 0);
      slab->put(0, records.size(), [&](std::uint64_t i) { return records[i]; });
      slab->parts.assign(1, {0, records.size()});
      files->write(*slab, threads);
    });
    // The degree is known now, and with it the node is finished.
    slab->reset(0, 1);
    slab->first_dst = dst;
    slab->degrees[0] = files->num_edges() - before;
    files->write(*slab, threads);
    advance(num_records);
  }

  BuildPlan plan;
  const CscOptions& options = plan.options;
  const RecordLayout& layout = plan.layout;
  int threads;
  std::shared_ptr<NodeMarks> src_marks;
  std::shared_ptr<NodeMarks> dst_marks;
  ScratchSpace space;
  std::uint64_t sort_bytes;  // for one thread to sort in
  std::uint64_t most_slab_bytes;
  std::uint64_t hub_records;  // that are sorted at once
  std::uint64_t rank_bytes;
  std::optional<Runs> waiting;
  std::vector<NeighborhoodSorter> sorters;
  std::optional<CscFiles> files;
  std::optional<Slab> slab;
  EdgeCounts counts;
  NeighborhoodCounts hub_counts;
  const Checkpoint* checkpoint = nullptr;
  std::uint64_t done = 0;
};

CscBuilder::CscBuilder(CscOptions options, const BuildRoom& room,
                       std::shared_ptr<NodeMarks> src_marks, std::shared_ptr<NodeMarks> dst_marks)
    : state_(std::make_unique<State>(std::move(options), room, std::move(src_marks),
                                     std::move(dst_marks))) {}

CscBuilder::~CscBuilder() = default;

const CscOptions& CscBuilder::options() const noexcept { return state_->options; }

void CscBuilder::append(const EdgeSlab& slab) { state_->append(slab); }

CscStatistics CscBuilder::finish(const CscPaths& paths, const Checkpoint& checkpoint) {
  return state_->finish(paths, checkpoint);
}

}  // namespace gz
