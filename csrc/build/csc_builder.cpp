#include "build/csc_builder.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "arrays/parallel.h"
#include "base/chunk_sizes.h"
#include "base/errors.h"

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

// The number of records that the edges can become.
std::uint64_t max_records(const CscOptions& options) {
  return options.max_edges * (options.undirected ? 2 : 1);
}

}  // namespace

CscBuilder::CscBuilder(CscOptions options, const BuildRoom& room,
                       std::shared_ptr<NodeMarks> src_marks, std::shared_ptr<NodeMarks> dst_marks)
    : options_(std::move(options)),
      layout_(std::max(options_.num_src, options_.num_dst), Numbering(options_).end(),
              options_.columns),
      numbering_(options_),
      times_(layout_, options_),
      plan_{options_, layout_, numbering_, times_, {}},
      threads_(num_threads(room.threads)),
      src_marks_(std::move(src_marks)),
      dst_marks_(std::move(dst_marks)) {
  check(options_);
  const auto threads = static_cast<std::uint64_t>(threads_);
  space_.directory = room.directory;
  // Half for what waits, an eighth each for a run that is being made, what it is made from, sorting
  // and what has been sorted.
  space_.keep_bytes = room.memory / 2;
  const std::uint64_t share = room.memory / 8;
  space_.run_bytes = std::clamp<std::uint64_t>(
      share, 16 * layout_.size(),
      std::max(chunk_sizes.run_bytes, 16 * std::uint64_t{layout_.size()}));
  space_.segment_bytes =
      std::clamp<std::uint64_t>(room.memory >> 12, 64, chunk_sizes.segment_bytes);
  sort_bytes_ = share / threads;
  slab_bytes_ = std::min(share, chunk_sizes.slab_bytes);
  rank_bytes_ = room.memory / 2;
  const std::uint64_t record = std::max(NeighborhoodSorter::bytes_per_record(plan_),
                                        Slab::edge_bytes(layout_, 8, options_) + 8);
  hub_records_ = std::max<std::uint64_t>(std::min(share, chunk_sizes.slab_bytes) / record, 16);
  for (int t = 0; t < threads_; ++t)
    sorters_.push_back(std::make_unique<NeighborhoodSorter>(plan_));
  if (options_.num_dst > 0) {
    const KeyRange range = make_range(0, options_.num_dst - 1);
    plan_.packed = PackedEdges::of(options_, range.shift);
    runs_ = std::make_unique<Runs>(space_, range, plan_.waiting_bytes());
  }
}

KeyRange CscBuilder::make_range(std::uint64_t lo, std::uint64_t hi) const {
  std::uint64_t buckets =
      std::clamp<std::uint64_t>(space_.run_bytes / space_.segment_bytes, 2, kMaxBuckets);
  buckets = std::min(
      buckets, std::max<std::uint64_t>(max_records(options_) / chunk_sizes.bucket_records, 16));
  return {lo, hi, buckets};
}

Runs CscBuilder::make_runs(std::uint64_t lo, std::uint64_t hi) {
  return {space_, make_range(lo, hi), layout_.size()};
}

void CscBuilder::append(const EdgeSlab& slab) {
  const auto step = static_cast<std::int64_t>(space_.run_bytes / plan_.waiting_bytes() /
                                              (options_.undirected ? 2 : 1));
  for (std::int64_t begin = slab.begin; begin < slab.end; begin += step) {
    EdgeSlab part = slab;
    part.begin = begin;
    part.end = std::min(slab.end, begin + step);
    const std::int64_t size = part.end - part.begin;
    if (counts_.input + static_cast<std::uint64_t>(size) > options_.max_edges) {
      throw invalid("edges: found more than the ", options_.max_edges, " that were declared");
    }
    const auto slices = static_cast<int>(
        std::clamp<std::int64_t>(size / chunk_sizes.slice_edges, 1, std::int64_t{threads_}));
    EdgeSource source(plan_, src_marks_.get(), part, counts_, slices);
    if (runs_ == nullptr) {  // there are no destinations: this raises for the first edge
      std::uint64_t key;
      source.keys(0, 0, 1, &key);
      source.counted();
    }
    partition(source, slices, runs_->record_bytes(), *runs_);
    counts_.input += static_cast<std::uint64_t>(size);
  }
}

CscStatistics CscBuilder::finish(const CscPaths& paths, const Checkpoint& checkpoint) {
  checkpoint_ = &checkpoint;
  CscFiles files(options_, layout_, numbering_, paths, counts_.edges, counts_.reverses, space_,
                 dst_marks_.get());
  {
    Slab slab(layout_, files.index_bytes(), options_);
    if (runs_) write_destinations(*runs_, files, slab);
    runs_.reset();
  }
  CscStatistics found;
  found.input = counts_;
  found.result = hub_counts_;
  for (const auto& sorter : sorters_) found.result += sorter->counts;
  sorters_.clear();
  files.finish(rank_bytes_, threads_, checkpoint);
  found.num_edges = files.num_edges();
  found.ids_are_slots = files.ids_are_slots();
  for (const double share : kQuantiles) {
    found.degree_quantiles.push_back(files.degrees().quantile(share));
  }
  found.scratch_bytes = space_.written;
  found.scratch_peak = space_.peak;
  return found;
}

void CscBuilder::advance(std::uint64_t records) {
  done_ += records;
  (*checkpoint_)(done_, counts_.edges + counts_.reverses);
}

std::uint64_t CscBuilder::max_edges(const Runs& runs,
                                    const DestinationRange& range) const noexcept {
  const bool loops = options_.self_loops == SelfLoops::kAdd;
  return runs.num_records(range.bucket) + (loops ? range.num_dst() : 0);
}

std::uint64_t CscBuilder::slab_bytes(const Runs& runs,
                                     const DestinationRange& range) const noexcept {
  return max_edges(runs, range) * Slab::edge_bytes(layout_, 8, options_) + range.num_dst() * 8;
}

bool CscBuilder::fits(const Runs& runs, const DestinationRange& range) const noexcept {
  const std::uint64_t bytes =
      runs.num_records(range.bucket) * NeighborhoodSorter::bytes_per_record(plan_) +
      range.num_dst() * NeighborhoodSorter::bytes_per_destination(plan_);
  return bytes <= sort_bytes_ && slab_bytes(runs, range) <= slab_bytes_;
}

void CscBuilder::write_destinations(Runs& runs, CscFiles& files, Slab& slab) {
  std::vector<DestinationRange> batch;
  std::uint64_t bytes = 0;
  for (std::uint64_t bucket = 0; bucket < runs.range().num_buckets(); ++bucket) {
    const DestinationRange range{bucket, runs.range().first_key(bucket),
                                 runs.range().last_key(bucket)};
    if (!fits(runs, range)) {
      write_batch(runs, batch, files, slab);
      bytes = 0;
      if (range.num_dst() > 1) {
        Runs finer = split(runs, bucket, &CscBuilder::dst_of, range.first_dst, range.last_dst);
        runs.done_with(bucket + 1);
        write_destinations(finer, files, slab);
      } else if (plan_.packed) {
        const Runs records = unpacked(runs, range);
        runs.done_with(bucket + 1);
        write_hub(records, {0, range.first_dst, range.last_dst}, files, slab);
      } else {
        write_hub(runs, range, files, slab);
        runs.done_with(bucket + 1);
      }
      continue;
    }
    const std::uint64_t more = slab_bytes(runs, range);
    if (bytes + more > slab_bytes_) {
      write_batch(runs, batch, files, slab);
      bytes = 0;
    }
    batch.push_back(range);
    bytes += more;
  }
  write_batch(runs, batch, files, slab);
}

void CscBuilder::write_batch(Runs& runs, std::vector<DestinationRange>& ranges, CscFiles& files,
                             Slab& slab) {
  if (ranges.empty()) return;
  const std::uint64_t first_dst = ranges.front().first_dst;
  std::vector<std::uint64_t> at;
  std::uint64_t edges = 0, records = 0;
  for (const DestinationRange& range : ranges) {
    at.push_back(edges);
    records += runs.num_records(range.bucket);
    edges += max_edges(runs, range);
  }
  slab.reset(edges, ranges.back().last_dst - first_dst + 1);
  slab.first_dst = first_dst;
  slab.parts.resize(ranges.size());
  const std::uint64_t last_bucket = ranges.back().bucket;
  const std::uint64_t ahead = last_bucket + ranges.size();
  if (last_bucket + 1 < runs.range().num_buckets()) {
    runs.will_read(last_bucket + 1, std::min(ahead, runs.range().num_buckets() - 1));
  }
  std::atomic<std::size_t> next{0};
  parallel_for(threads_, 1, threads_, [&](std::int64_t thread, std::int64_t) {
    NeighborhoodSorter& sorter = *sorters_[static_cast<std::size_t>(thread)];
    for (std::size_t i; (i = next.fetch_add(1)) < ranges.size();) {
      const std::uint64_t degrees_at = ranges[i].first_dst - first_dst;
      slab.parts[i] = {at[i], sorter.sort(runs, ranges[i], at[i], degrees_at, &slab)};
    }
  });
  runs.done_with(last_bucket + 1);
  files.write(slab, threads_);
  ranges.clear();
  advance(records);
}

// Records that lie one after another, as a source for partition().
class CscBuilder::RecordBlock final : public RecordSource {
 public:
  RecordBlock(const CscBuilder& builder, Key key, const Byte* records, std::uint64_t count,
              const Runs& runs)
      : builder_(builder),
        key_(key),
        least_(runs.range().lo),
        records_(records),
        record_bytes_(runs.record_bytes()),
        count_(count) {}
  std::int64_t num_items() const override { return static_cast<std::int64_t>(count_); }
  std::int64_t keys(int, std::int64_t begin, std::int64_t end, std::uint64_t* keys) override {
    for (std::int64_t i = begin; i < end; ++i) *keys++ = (builder_.*key_)(at(i), least_);
    return end - begin;
  }
  const Byte* records(int, std::int64_t begin, std::int64_t, Byte*) override { return at(begin); }

 private:
  const Byte* at(std::int64_t i) const noexcept { return records_ + i * record_bytes_; }

  const CscBuilder& builder_;
  Key key_;
  std::uint64_t least_;
  const Byte* records_;
  std::int64_t record_bytes_;
  std::uint64_t count_;
};

void CscBuilder::add_block(const Byte* records, std::uint64_t count, Key key, Runs* runs) {
  RecordBlock source(*this, key, records, count, *runs);
  const auto slices =
      std::clamp<std::uint64_t>(count / static_cast<std::uint64_t>(chunk_sizes.slice_edges), 1,
                                static_cast<std::uint64_t>(threads_));
  partition(source, static_cast<int>(slices), runs->record_bytes(), *runs);
}

template <class Body>
void CscBuilder::each_block(const Runs& runs, std::uint64_t bucket, std::uint64_t max_records,
                            const Body& body) {
  const std::uint64_t size = std::min(max_records, runs.num_records(bucket));
  Buffer<Byte> block(static_cast<std::int64_t>(size * runs.record_bytes()) + PackedEdges::kSlack);
  Runs::Reader reader(runs, bucket);
  while (const std::uint64_t n = reader.next(block.data(), size)) {
    body(block.data(), n);
    advance(0);
  }
}

Runs CscBuilder::split(const Runs& runs, std::uint64_t bucket, Key key) {
  std::uint64_t lo = ~0ULL, hi = 0;
  each_block(runs, bucket, space_.run_bytes / layout_.size(),
             [&](const Byte* records, std::uint64_t count) {
               for (std::uint64_t i = 0; i < count; ++i) {
                 const std::uint64_t value = (this->*key)(records + i * layout_.size(), 0);
                 lo = std::min(lo, value);
                 hi = std::max(hi, value);
               }
             });
  return split(runs, bucket, key, lo, hi);
}

Runs CscBuilder::split(const Runs& runs, std::uint64_t bucket, Key key, std::uint64_t lo,
                       std::uint64_t hi) {
  Runs finer(space_, make_range(lo, hi), runs.record_bytes());
  each_block(
      runs, bucket, space_.run_bytes / layout_.size(),
      [&](const Byte* records, std::uint64_t count) { add_block(records, count, key, &finer); });
  return finer;
}

Runs CscBuilder::unpacked(const Runs& runs, const DestinationRange& range) {
  Runs records = make_runs(0, 0);
  Unpacker unpack(*plan_.packed, layout_, numbering_, range.first_dst);
  Buffer<Byte> block;
  each_block(runs, range.bucket, space_.run_bytes / layout_.size(),
             [&](const Byte* edges, std::uint64_t count) {
               block.resize(static_cast<std::int64_t>(count * layout_.size()));
               unpack(edges, count, block.data());
               records.add(std::move(block), {0, static_cast<std::uint32_t>(count)});
               block = records.make_records(0);
             });
  return records;
}

template <class Body>
void CscBuilder::each_sources(Runs& by_source, const Body& body) {
  for (std::uint64_t bucket = 0; bucket < by_source.range().num_buckets(); ++bucket) {
    const std::uint64_t total = by_source.num_records(bucket);
    if (total > hub_records_ && by_source.range().shift > 0) {
      Runs finer = split(by_source, bucket, &CscBuilder::src_of);
      by_source.done_with(bucket + 1);
      each_sources(finer, body);
      continue;
    }
    std::uint64_t done = 0;
    each_block(by_source, bucket, hub_records_, [&](const Byte* records, std::uint64_t count) {
      const bool is_first = done == 0;
      done += count;
      body(records, count, is_first, done == total);
    });
    by_source.done_with(bucket + 1);
  }
}

void CscBuilder::write_hub(const Runs& runs, const DestinationRange& range, CscFiles& files,
                           Slab& slab) {
  const std::uint64_t dst = range.first_dst, before = files.num_edges();
  const std::uint32_t size = layout_.size();
  std::vector<Key> keys;
  if (times_.any()) keys.push_back(&CscBuilder::time_of);
  // Merging leaves edges by source, and reverses lie between the edges of the input.
  if (options_.coalesce || options_.undirected) keys.push_back(&CscBuilder::number_of);

  Runs by_source = split(runs, range.bucket, &CscBuilder::src_of);
  Runs merged = keys.empty() || keys[0] == &CscBuilder::time_of
                    ? make_runs(0, ~0ULL)
                    : make_runs(0, numbering_.end() - 1);
  EdgeMerger merger(layout_, options_);
  SourceTable table;
  Buffer<Byte> block;
  std::uint64_t duplicates = 0, loops = 0;
  each_sources(
      by_source, [&](const Byte* records, std::uint64_t count, bool is_first, bool is_last) {
        if (is_first) table.clear(count);
        if (is_first && options_.coalesce) merger.clear(count);
        const std::uint32_t known = table.size();
        for (std::uint64_t i = 0; i < count; ++i) {
          const std::uint64_t src = layout_.src(records + i * size);
          table.find_or_add(src);
          loops += !options_.bipartite && src == dst;
          if (options_.coalesce) merger.add(records + i * size);
        }
        duplicates += count - (table.size() - known);
        if (!options_.coalesce || !is_last) return;
        block.clear();
        for (const Byte* const record : merger.finish()) {
          block.resize(block.size() + size);
          std::memcpy(block.data() + block.size() - size, record, size);
        }
        add_block(block.data(), static_cast<std::uint64_t>(block.size() / size), keys[0], &merged);
      });
  (options_.coalesce ? hub_counts_.merged : hub_counts_.duplicates) += duplicates;
  const bool add_loop = options_.self_loops == SelfLoops::kAdd && loops == 0;
  hub_counts_.loops_added += add_loop;
  hub_counts_.loops += options_.coalesce ? std::min<std::uint64_t>(loops, 1) : loops;
  hub_counts_.loops += add_loop;

  Buffer<Byte> loop(size);
  if (add_loop) NeighborhoodSorter::make_loop(plan_, dst, loop.data());
  if (!options_.coalesce && !keys.empty()) {
    each_block(runs, range.bucket, space_.run_bytes / size,
               [&](const Byte* records, std::uint64_t count) {
                 add_block(records, count, keys[0], &merged);
               });
  }
  if (!keys.empty()) {
    if (add_loop) add_block(loop.data(), 1, keys[0], &merged);
    write_ordered(merged, keys, 0, files, slab);
  } else {
    std::vector<const Byte*> order;
    const auto write = [&](const Byte* records, std::uint64_t count) {
      order.clear();
      for (std::uint64_t i = 0; i < count; ++i) order.push_back(records + i * size);
      write_block(order, files, slab);
    };
    each_block(runs, range.bucket, hub_records_, write);
    if (add_loop) write(loop.data(), 1);
  }
  // The degree is known now, and with it the node is finished.
  slab.reset(0, 1);
  slab.first_dst = dst;
  slab.degrees[0] = files.num_edges() - before;
  files.write(slab, threads_);
  advance(runs.num_records(range.bucket));
}

void CscBuilder::write_ordered(Runs& runs, const std::vector<Key>& keys, std::size_t level,
                               CscFiles& files, Slab& slab) {
  const std::uint32_t size = layout_.size();
  std::vector<const Byte*> order;
  for (std::uint64_t bucket = 0; bucket < runs.range().num_buckets(); ++bucket) {
    const bool fits = runs.num_records(bucket) <= hub_records_;
    if (!fits && (runs.range().shift > 0 || level + 1 < keys.size())) {
      const std::size_t next = runs.range().shift > 0 ? level : level + 1;
      Runs finer = split(runs, bucket, keys[next]);
      runs.done_with(bucket + 1);
      write_ordered(finer, keys, next, files, slab);
      continue;
    }
    each_block(runs, bucket, hub_records_, [&](const Byte* records, std::uint64_t count) {
      order.clear();
      for (std::uint64_t i = 0; i < count; ++i) order.push_back(records + i * size);
      std::stable_sort(order.begin(), order.end(), [&](const Byte* a, const Byte* b) {
        for (std::size_t k = level; k < keys.size(); ++k) {
          const std::uint64_t left = (this->*keys[k])(a, 0), right = (this->*keys[k])(b, 0);
          if (left != right) return left < right;
        }
        return false;
      });
      write_block(order, files, slab);
    });
    runs.done_with(bucket + 1);
  }
}

void CscBuilder::write_block(const std::vector<const Byte*>& records, CscFiles& files, Slab& slab) {
  slab.reset(records.size(), 0);
  slab.put(0, records.size(), [&](std::uint64_t i) { return records[i]; });
  slab.parts.assign(1, {0, records.size()});
  files.write(slab, threads_);
}

}  // namespace gz
