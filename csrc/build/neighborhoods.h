// Sorts the edges of some destinations in memory: the innermost step of a build, one thread each.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "arrays/buffer.h"
#include "base/chunk_sizes.h"
#include "build/build_plan.h"
#include "build/counting_order.h"
#include "build/csc_builder.h"
#include "build/parallel_edges.h"
#include "build/runs.h"
#include "build/slab.h"

namespace gz {

// Destinations first_dst … last_dst, whose edges are one bucket.
struct DestinationRange {
  std::uint64_t bucket;
  std::uint64_t first_dst;
  std::uint64_t last_dst;
  std::uint64_t num_dst() const noexcept { return last_dst - first_dst + 1; }
};

class NeighborhoodSorter {
 public:
  explicit NeighborhoodSorter(const BuildPlan& plan) : plan_(plan), merger_(plan) {}

  // Reads the range's records and puts them in final order into `slab` from position `at` on, their
  // degrees from slab->degrees[degrees_at] on. Returns how many edges there are.
  std::uint64_t sort(const Runs& runs, const DestinationRange& range, std::uint64_t at,
                     std::uint64_t degrees_at, Slab* slab) {
    const RecordLayout& layout = plan_.layout;
    read(runs, range);
    if (plan_.options.self_loops == SelfLoops::kAdd) add_loops(range);

    // Reverses come behind all edges of the input, but lie between them in the records.
    const bool both = plan_.options.undirected;
    const std::uint32_t keys_per_dst = both ? 2 : 1;
    const std::uint64_t num_keys = range.num_dst() * keys_per_dst;
    ends_.resize(static_cast<std::int64_t>(num_keys));
    order_.resize(num_records_);
    const auto key_of = [&](std::uint32_t i) {
      const std::uint64_t d = layout.dst(record(i)) - range.first_dst;
      return both ? 2 * d + (layout.number(record(i)) >= plan_.numbering.reverse_base) : d;
    };
    counting_order(num_records_, num_keys, key_of, ends_.data(), order_.data());

    std::uint32_t begin = 0, done = 0;
    for (std::uint64_t d = 0; d < range.num_dst(); ++d) {
      const std::uint32_t end = ends_[static_cast<std::int64_t>((d + 1) * keys_per_dst - 1)];
      const std::uint32_t kept = settle(range.first_dst + d, begin, end) - begin;
      if (done != begin) std::copy_n(order_.data() + begin, kept, order_.data() + done);
      slab->degrees[static_cast<std::int64_t>(degrees_at + d)] = kept;
      done += kept;
      begin = end;
    }
    slab->put(at, done,
              [&](std::uint64_t i) { return record(order_[static_cast<std::int64_t>(i)]); });
    return done;
  }

  // The loop of a node that has none, as a record at `to`.
  static void make_loop(const BuildPlan& plan, std::uint64_t node, Byte* to) {
    plan.layout.set_ends(to, node, node);
    plan.layout.set_number(to, plan.numbering.loop_base + node);
    for (std::size_t c = 0; c < plan.options.columns.size(); ++c) {
      const PayloadColumn& column = plan.options.columns[c];
      Byte* item = to + plan.layout.column_at(c);
      for (std::uint32_t i = 0; i < column.num_items(); ++i) {
        item = std::copy(column.one.begin(), column.one.end(), item);
      }
    }
  }

  // Bytes in use for each record and for each destination, at most.
  static std::uint64_t bytes_per_record(const BuildPlan& plan) {
    const std::uint64_t order = plan.options.coalesce ? 8 : 4;
    const std::uint64_t sources = 4 * 8;
    const std::uint64_t time = plan.times.any() ? 32 : 0;
    return plan.layout.size() + order + sources + time;
  }
  static std::uint64_t bytes_per_destination(const BuildPlan& plan) {
    const bool loops = plan.options.self_loops == SelfLoops::kAdd;
    return (plan.options.undirected ? 8 : 4) + (loops ? 1 + bytes_per_record(plan) : 0);
  }

  NeighborhoodCounts counts;

 private:
  Byte* record(std::uint32_t i) noexcept {
    return records_.data() + std::int64_t{i} * plan_.layout.size();
  }

  // All records of the range, in the order of the input.
  void read(const Runs& runs, const DestinationRange& range) {
    num_records_ = static_cast<std::uint32_t>(runs.num_records(range.bucket));
    records_.resize(std::int64_t{num_records_} * plan_.layout.size());
    Runs::Reader reader(runs, range.bucket);
    if (!plan_.packed) {
      reader.next(records_.data(), num_records_);
      return;
    }
    const std::uint64_t most = std::min<std::uint64_t>(chunk_sizes.csc_numbers, num_records_);
    packed_.resize(static_cast<std::int64_t>(most * plan_.packed->size()) + PackedEdges::kSlack);
    Unpacker unpack(*plan_.packed, plan_.layout, plan_.numbering, range.first_dst);
    std::uint32_t done = 0;
    while (const std::uint64_t count = reader.next(packed_.data(), most)) {
      unpack(packed_.data(), count, record(done));
      done += static_cast<std::uint32_t>(count);
    }
  }

  void add_loops(const DestinationRange& range) {
    const RecordLayout& layout = plan_.layout;
    has_loop_.assign(range.num_dst(), false);
    std::uint64_t missing = range.num_dst();
    for (std::uint32_t i = 0; i < num_records_; ++i) {
      const std::uint64_t dst = layout.dst(record(i));
      if (layout.src(record(i)) != dst || has_loop_[dst - range.first_dst]) continue;
      has_loop_[dst - range.first_dst] = true;
      --missing;
    }
    counts.loops_added += missing;
    const auto total = num_records_ + static_cast<std::uint32_t>(missing);
    records_.resize(std::int64_t{total} * layout.size());
    for (std::uint64_t d = 0; d < range.num_dst(); ++d) {
      if (!has_loop_[d]) make_loop(plan_, range.first_dst + d, record(num_records_++));
    }
  }

  // Merges or counts duplicates among one destination's edges order_[begin … end), then sorts
  // these by time. Returns the new end.
  std::uint32_t settle(std::uint64_t dst, std::uint32_t begin, std::uint32_t end) {
    const std::uint32_t duplicates = count_duplicates(begin, end);
    if (duplicates > 0 && plan_.options.coalesce) {
      end = merge(begin, end);
      counts.merged += duplicates;
    } else {
      counts.duplicates += duplicates;
    }
    if (!plan_.options.bipartite) {
      for (std::uint32_t i = begin; i < end; ++i) {
        counts.loops += plan_.layout.src(record(order_[i])) == dst;
      }
    }
    if (plan_.times.any()) sort_by_time(begin, end);
    return end;
  }

  std::uint32_t count_duplicates(std::uint32_t begin, std::uint32_t end) {
    constexpr std::uint32_t kFew = 8;
    const std::uint32_t n = end - begin;
    if (n < 2) return 0;
    if (n <= std::min(kFew, chunk_sizes.searched_neighbors)) {
      std::uint64_t src[kFew];
      std::uint32_t duplicates = 0;
      for (std::uint32_t i = 0; i < n; ++i) {
        src[i] = plan_.layout.src(record(order_[begin + i]));
        bool found = false;
        for (std::uint32_t j = 0; j < i; ++j) found |= src[j] == src[i];
        duplicates += found;
      }
      return duplicates;
    }
    constexpr std::uint64_t kNone = ~0ULL;
    const std::uint64_t size = std::bit_ceil(2 * std::uint64_t{n});
    const int shift = 64 - std::countr_zero(size);
    sources_.assign(size, kNone);
    std::uint32_t duplicates = 0;
    for (std::uint32_t i = begin; i < end; ++i) {
      const std::uint64_t src = plan_.layout.src(record(order_[i]));
      // Fibonacci hashing: the golden ratio spreads consecutive ids.
      std::uint64_t at = (src * 0x9E3779B97F4A7C15ULL) >> shift;
      while (sources_[at] != kNone && sources_[at] != src) at = (at + 1) & (size - 1);
      duplicates += std::exchange(sources_[at], src) == src;
    }
    return duplicates;
  }

  std::uint32_t merge(std::uint32_t begin, std::uint32_t end) {
    const RecordLayout& layout = plan_.layout;
    const auto all = order_.data() + begin;
    const auto src = [&](std::uint32_t i) { return layout.src(record(i)); };
    const auto number = [&](std::uint32_t i) { return layout.number(record(i)); };
    std::ranges::stable_sort(all, order_.data() + end, {}, src);
    // Merged edges take the places of earlier ones.
    std::uint32_t kept = begin;
    const auto put = [&](const Byte* merged) {
      std::memcpy(record(order_[kept++]), merged, layout.size());
    };
    for (std::uint32_t i = begin; i < end; ++i) merger_.add(record(order_[i]), put);
    merger_.flush(put);
    std::ranges::sort(all, order_.data() + kept, {}, number);
    return kept;
  }

  void sort_by_time(std::uint32_t begin, std::uint32_t end) {
    by_time_.clear();
    for (std::uint32_t i = begin; i < end; ++i) {
      by_time_.emplace_back(plan_.times(record(order_[i])), order_[i]);
    }
    const auto time = [](const auto& pair) { return pair.first; };
    if (std::ranges::is_sorted(by_time_, {}, time)) return;
    std::ranges::stable_sort(by_time_, {}, time);
    for (std::uint32_t i = begin; i < end; ++i) order_[i] = by_time_[i - begin].second;
  }

  const BuildPlan& plan_;
  EdgeMerger merger_;
  Buffer<Byte> records_;
  Buffer<Byte> packed_;  // some of them as they waited
  std::uint32_t num_records_ = 0;
  Buffer<std::uint32_t> ends_;
  Buffer<std::uint32_t> order_;
  std::vector<bool> has_loop_;
  std::vector<std::uint64_t> sources_;  // a hash table of count_duplicates()
  std::vector<std::pair<std::uint64_t, std::uint32_t>> by_time_;
};

}  // namespace gz
