#include "build/partition.h"

#include <algorithm>

#include "arrays/parallel.h"
#include "base/chunk_sizes.h"
#include "base/constants.h"

namespace gz {
namespace {

// Sends records to where their buckets go on; `next` is in records.
template <std::uint32_t kSize>
void scatter(const Byte* records, const std::uint64_t* keys, std::int64_t count,
             std::uint32_t record_bytes, const KeyRange& range, std::uint32_t* next, Byte* out) {
  const std::size_t size = kSize > 0 ? kSize : record_bytes;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t place = next[range.bucket(keys[i])]++;
    std::memcpy(out + place * size, records + static_cast<std::size_t>(i) * size, size);
  }
}

auto scatter_for(std::uint32_t record_bytes) {
  auto found = &scatter<0>;
  with_constant<5U, 6U, 7U, 8U, 12U, 16U, 20U, 24U>(record_bytes,
                                                    [&](auto size) { found = &scatter<size>; });
  return found;
}

}  // namespace

void partition(RecordSource& source, int threads, Runs& runs) {
  const auto slices = static_cast<int>(std::clamp<std::int64_t>(
      source.num_items() / chunk_sizes.slice_edges, 1, std::int64_t{threads}));
  const std::uint32_t record_bytes = runs.record_bytes();
  const std::int64_t piece = std::min(RecordSource::kPiece, chunk_sizes.edge_piece);
  constexpr std::int64_t kMaxRecords = RecordSource::kPiece * RecordSource::kMaxRecordsPerItem;
  const KeyRange& range = runs.range();
  const std::uint64_t num_buckets = range.num_buckets();
  const std::int64_t slice_items = (source.num_items() + slices - 1) / slices;
  const auto each_piece = [&](std::int64_t slice, auto&& body) {
    const std::int64_t end = std::min(source.num_items(), (slice + 1) * slice_items);
    for (std::int64_t at = slice * slice_items; at < end; at += piece) {
      body(at, std::min(end, at + piece));
    }
  };

  // Records by slice and bucket, then the place of the next one.
  std::vector<std::uint32_t> next(static_cast<std::size_t>(slices) * num_buckets, 0);
  parallel_for(slices, 1, slices, [&](std::int64_t slice, std::int64_t) {
    std::uint32_t* const counts = next.data() + static_cast<std::size_t>(slice) * num_buckets;
    std::vector<std::uint64_t> keys(kMaxRecords);
    each_piece(slice, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t count = source.keys(static_cast<int>(slice), begin, end, keys.data());
      for (std::int64_t i = 0; i < count; ++i) {
        ++counts[range.bucket(keys[static_cast<std::size_t>(i)])];
      }
    });
  });
  source.counted();

  std::vector<std::uint32_t> starts(num_buckets + 1);
  std::uint32_t total = 0;
  for (std::uint64_t bucket = 0; bucket < num_buckets; ++bucket) {
    starts[bucket] = total;
    for (std::size_t slice = 0; slice < static_cast<std::size_t>(slices); ++slice) {
      std::uint32_t& count = next[slice * num_buckets + bucket];
      total += std::exchange(count, total);
    }
  }
  starts[num_buckets] = total;
  if (total == 0) return;

  Buffer<Byte> out = runs.make_records(static_cast<std::int64_t>(total) * record_bytes);
  const auto scatter = scatter_for(record_bytes);
  parallel_for(slices, 1, slices, [&](std::int64_t slice, std::int64_t) {
    std::uint32_t* const places = next.data() + static_cast<std::size_t>(slice) * num_buckets;
    std::vector<std::uint64_t> keys(kMaxRecords);
    Buffer<Byte> space(kMaxRecords * record_bytes + PackedEdges::kSlack);
    each_piece(slice, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t count = source.keys(static_cast<int>(slice), begin, end, keys.data());
      const Byte* const records = source.records(static_cast<int>(slice), begin, end, space.data());
      scatter(records, keys.data(), count, record_bytes, range, places, out.data());
    });
  });
  runs.add(std::move(out), std::move(starts));
}

}  // namespace gz
