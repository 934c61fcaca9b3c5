#include "build/edge_source.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace gz {
namespace {

template <class T>
void read_ids(const void* data, std::int64_t stride, std::int64_t begin, std::int64_t end,
              std::uint64_t* out) noexcept {
  const T* from = static_cast<const T*>(data) + begin * stride;
  for (std::int64_t i = 0; i < end - begin; ++i) {
    // Through int64: a negative 32-bit id must not look like a large one.
    out[i] = static_cast<std::uint64_t>(static_cast<std::int64_t>(from[i * stride]));
  }
}

}  // namespace

void IdArray::read(std::int64_t begin, std::int64_t end, std::uint64_t* out) const noexcept {
  switch (kind) {
    case Kind::kInt64:
      return read_ids<std::int64_t>(data, stride, begin, end, out);
    case Kind::kInt32:
      return read_ids<std::int32_t>(data, stride, begin, end, out);
    case Kind::kUint32:
      return read_ids<std::uint32_t>(data, stride, begin, end, out);
    case Kind::kUint64:
      return read_ids<std::uint64_t>(data, stride, begin, end, out);
  }
}

void check_end(std::uint64_t edge, const char* end, std::int64_t id, std::uint64_t num_nodes) {
  if (id >= 0 && static_cast<std::uint64_t>(id) < num_nodes) return;
  throw std::out_of_range("edge " + std::to_string(edge) + ": " + end + " id: found " +
                          std::to_string(id) + ", expected 0 <= id < " + std::to_string(num_nodes));
}

EdgeSource::EdgeSource(const BuildPlan& plan, NodeMarks* marks, const EdgeSlab& slab,
                       EdgeCounts& counts, int slices)
    : options_(plan.options),
      layout_(plan.layout),
      numbering_(plan.numbering),
      times_(plan.times),
      packed_(plan.packed),
      marks_(marks),
      slab_(slab),
      counts_(counts),
      slices_(static_cast<std::size_t>(slices)) {}

void EdgeSource::check(Slice& slice, std::int64_t begin, std::int64_t end) const noexcept {
  if (slice.bad >= 0) return;
  std::uint64_t worst_src = 0, worst_dst = 0;
  for (std::int64_t i = 0; i < end - begin; ++i) {
    worst_src = std::max(worst_src, slice.src[i]);
    worst_dst = std::max(worst_dst, slice.dst[i]);
  }
  bool good = worst_src < options_.num_src && worst_dst < options_.num_dst;
  const Byte* nans = nullptr;
  std::uint32_t row = 0;
  if (options_.time_column) {
    row = layout_.column_bytes(*options_.time_column);
    nans = slab_.columns[*options_.time_column] + slab_.begin * row;
    for (std::int64_t i = begin; i < end && good; ++i) good = !times_.is_nan(nans + i * row);
  }
  if (good) return;
  for (std::int64_t i = 0; i < end - begin && slice.bad < 0; ++i) {
    if (slice.src[i] >= options_.num_src || slice.dst[i] >= options_.num_dst ||
        (nans != nullptr && times_.is_nan(nans + (begin + i) * row))) {
      slice.bad = begin + i;
    }
  }
}

void EdgeSource::refuse(std::int64_t at) const {
  const std::uint64_t edge = counts_.input + static_cast<std::uint64_t>(at);
  std::uint64_t id;
  slab_.src.read(slab_.begin + at, slab_.begin + at + 1, &id);
  check_end(edge, "source", static_cast<std::int64_t>(id), options_.num_src);
  slab_.dst.read(slab_.begin + at, slab_.begin + at + 1, &id);
  check_end(edge, "destination", static_cast<std::int64_t>(id), options_.num_dst);
  throw std::invalid_argument("edge " + std::to_string(edge) + ": " +
                              options_.columns[*options_.time_column].name +
                              ": found NaN, expected a time");
}

std::int64_t EdgeSource::keys(int slice_number, std::int64_t begin, std::int64_t end,
                              std::uint64_t* keys) {
  Slice& slice = slices_[static_cast<std::size_t>(slice_number)];
  slab_.src.read(slab_.begin + begin, slab_.begin + end, slice.src);
  slab_.dst.read(slab_.begin + begin, slab_.begin + end, slice.dst);
  if (counting_) {
    check(slice, begin, end);
    if (slice.bad >= 0) return 0;
  }
  const std::int64_t n = end - begin;
  const bool drop = options_.self_loops == SelfLoops::kRemove;
  if (!options_.undirected && !drop) {
    std::copy_n(slice.dst, n, keys);
    if (counting_) {
      slice.edges += static_cast<std::uint64_t>(n);
      for (std::int64_t i = 0; i < n; ++i) {
        slice.loops += is_loop(slice.src[i], slice.dst[i]);
        if (marks_ != nullptr) marks_->mark(slice.src[i]);
      }
    }
    return n;
  }
  std::int64_t count = 0;
  std::uint64_t loops = 0, edges = 0, reverses = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const bool loop = is_loop(slice.src[i], slice.dst[i]);
    loops += loop;
    if (loop && drop) continue;
    keys[count++] = slice.dst[i];
    ++edges;
    if (counting_ && marks_ != nullptr) marks_->mark(slice.src[i]);
    if (!options_.undirected || loop) continue;
    keys[count++] = slice.src[i];
    ++reverses;
  }
  if (counting_) {
    slice.loops += loops;
    slice.edges += edges;
    slice.reverses += reverses;
  }
  return count;
}

void EdgeSource::counted() {
  counting_ = false;
  for (const Slice& slice : slices_) {
    if (slice.bad >= 0) refuse(slice.bad);
  }
  for (Slice& slice : slices_) {
    counts_.loops += slice.loops;
    counts_.edges += std::exchange(slice.edges, counts_.edges);
    counts_.reverses += std::exchange(slice.reverses, numbering_.reverse_base() + counts_.reverses);
  }
}

const Byte* EdgeSource::records(int slice_number, std::int64_t begin, std::int64_t end,
                                Byte* space) {
  Slice& slice = slices_[static_cast<std::size_t>(slice_number)];
  if (packed_) return packed(slice, end - begin, space);
  const std::uint32_t size = layout_.size();
  const bool drop = options_.self_loops == SelfLoops::kRemove;
  Byte* record = space;
  for (std::int64_t i = 0; i < end - begin; ++i) {
    const std::uint64_t src = slice.src[i], dst = slice.dst[i];
    const bool loop = is_loop(src, dst);
    if (loop && drop) continue;
    layout_.set_ends(record, src, dst);
    layout_.set_number(record, slice.edges++);
    for (std::size_t c = 0; c < options_.columns.size(); ++c) {
      const std::uint32_t row = layout_.column_bytes(c);
      copy_row(record + layout_.column_at(c), slab_.columns[c] + (slab_.begin + begin + i) * row,
               row);
    }
    record += size;
    if (!options_.undirected || loop) continue;
    std::memcpy(record, record - size, size);
    layout_.set_ends(record, dst, src);
    layout_.set_number(record, slice.reverses++);
    record += size;
  }
  return space;
}

const Byte* EdgeSource::packed(Slice& slice, std::int64_t count, Byte* space) const noexcept {
  const bool drop = options_.self_loops == SelfLoops::kRemove;
  Byte* edge = space;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t src = slice.src[i], dst = slice.dst[i];
    const bool loop = is_loop(src, dst);
    if (loop && drop) continue;
    packed_->put(edge, src, dst, false);
    edge += packed_->size();
    if (!options_.undirected || loop) continue;
    packed_->put(edge, dst, src, true);
    edge += packed_->size();
  }
  return space;
}

}  // namespace gz
