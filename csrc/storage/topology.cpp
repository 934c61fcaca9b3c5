#include "storage/topology.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "arrays/parallel.h"
#include "base/chunk_sizes.h"
#include "base/errors.h"
#include "io/fault_guard.h"

namespace gz {

std::uint32_t index_bytes_for(std::uint64_t num_src) noexcept {
  return num_src <= (1ULL << 32) ? 4 : 8;
}

namespace {

constexpr std::int64_t kBoundsGrain = 1 << 16;
constexpr std::int64_t kSlotsGrain = 256;

}  // namespace

std::shared_ptr<const Topology> Topology::open(const std::string& path) {
  std::shared_ptr<Topology> topology(new Topology(File::open(path)));
  TopologyHeader& h = topology->header_;
  read_header(*topology->file_, TopologyHeader::kMagic, &h, sizeof h);

  expect(path, "flags", h.flags, 0);
  checked_add(h.num_src, 0, path, "num_src");
  if (h.index_bytes != 0 && h.index_bytes != 8 && h.index_bytes != index_bytes_for(h.num_src)) {
    throw FormatError(path, "index_bytes", h.index_bytes,
                      "0, 8, or 4 for at most 2^32 source nodes (num_src is ", h.num_src, ")");
  }
  const std::uint64_t rows = checked_add(h.num_dst, 1, path, "num_dst");
  expect(path, "indptr_bytes", h.indptr_bytes, checked_mul(rows, 8, path, "num_dst"));
  expect(path, "indices_bytes", h.indices_bytes,
         checked_mul(h.num_edges, h.index_bytes, path, "num_edges"));
  if (h.num_edges > 0 && (h.num_src == 0 || h.num_dst == 0)) {
    throw FormatError(path, "num_edges", h.num_edges, "0 between node types of which one is empty");
  }
  expect(path, "indptr_offset", h.indptr_offset, kHeaderBytes);
  const std::uint64_t indptr_end =
      align_up(checked_add(h.indptr_offset, h.indptr_bytes, path, "indptr_bytes"));
  expect(path, "indices_offset", h.indices_offset, indptr_end);
  const std::uint64_t end = checked_add(h.indices_offset, h.indices_bytes, path, "indices_bytes");
  expect(path, "checksums_offset", h.common.checksums_offset, align_up(end));

  topology->map_ = Mapping::map(*topology->file_, h.common.file_bytes, MapMode::kReadOnly);
  return topology;
}

void Topology::will_need(std::uint64_t first, std::uint64_t count) const noexcept {
  // The kernel takes no more at a time than a request to the device has.
  const std::uint64_t most = chunk_sizes.will_need_bytes;
  const std::uint64_t width = index_bytes();
  const std::uint64_t end = header_.indices_offset + std::min(first + count, num_edges()) * width;
  for (std::uint64_t at = header_.indices_offset + first * width; at < end; at += most) {
    file_->will_need(at, std::min(most, end - at));
  }
}

void Topology::check_size() const {
  renew_guard();
  expect_size(*file_, header_.common.file_bytes);
}

void Topology::read_bounds(std::uint64_t first, std::uint64_t last, std::int64_t* out) const {
  check_size();
  const std::int64_t* const bounds = indptr();
  const auto from = static_cast<std::int64_t>(first);
  const auto nodes = static_cast<std::int64_t>(num_dst());
  const auto edges = static_cast<std::int64_t>(num_edges());
  std::atomic<std::int64_t> bad{-1};
  const auto count = static_cast<std::int64_t>(last - first) + 1;
  parallel_for(count, kBoundsGrain, 0, [&](std::int64_t begin, std::int64_t end) {
    // A map read at random has no read-ahead: this piece, and the next one while this is read.
    file_->will_need(header_.indptr_offset + 8 * static_cast<std::uint64_t>(from + begin),
                     16 * static_cast<std::uint64_t>(end - begin));
    guarded([&] {
      std::int64_t before = begin == 0 ? 0 : bounds[from + begin - 1];
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t node = from + i;
        const std::int64_t bound = bounds[node];
        const bool is_end = (node == 0 && bound != 0) || (node == nodes && bound != edges);
        if (bound < before || bound > edges || is_end) [[unlikely]]
          bad.store(node);
        if (out != nullptr) out[i] = bound;
        before = bound;
      }
    });
  });
  if (bad.load() >= 0) throw_bad_bounds(bad.load());
}

void Topology::find_destinations(std::span<const std::int64_t> slot, std::int64_t* out) const {
  check_size();
  const std::int64_t* const bounds = indptr();
  const auto nodes = static_cast<std::int64_t>(num_dst());
  std::atomic<std::int64_t> bad{-1};
  parallel_for(std::ssize(slot), kSlotsGrain, 0, [&](std::int64_t begin, std::int64_t end) {
    guarded([&] {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t at = slot[static_cast<std::size_t>(i)];
        const std::int64_t* const above = std::upper_bound(bounds, bounds + nodes + 1, at);
        const std::int64_t node = std::clamp<std::int64_t>(above - bounds - 1, 0, nodes - 1);
        if (bounds[node] > at || bounds[node + 1] <= at) [[unlikely]]
          bad.store(node);
        out[i] = node;
      }
    });
  });
  if (bad.load() >= 0) throw_bad_bounds(bad.load());
}

void Topology::throw_bad_bounds(std::int64_t node) const {
  throw FormatError(path(), text_of("indptr[", node, "]"), "a range outside the edges",
                    "numbers that rise from 0 to ", num_edges(),
                    "; run `graphzero verify` on the store");
}

std::shared_ptr<const Mapping> Topology::map_for_user() const {
  check_size();
  return Mapping::map(*file_, header_.common.file_bytes, MapMode::kCopyOnWrite);
}

namespace {

TopologyHeader make_header(const std::string& path, std::uint64_t num_src, std::uint64_t num_dst) {
  TopologyHeader h{};
  std::memcpy(h.common.magic, TopologyHeader::kMagic, sizeof h.common.magic);
  h.num_src = num_src;
  h.num_dst = num_dst;
  h.index_bytes = index_bytes_for(num_src);
  h.indptr_bytes = checked_mul(checked_add(num_dst, 1, path, "num_dst"), 8, path, "num_dst");
  h.indptr_offset = kHeaderBytes;
  h.indices_offset = align_up(checked_add(h.indptr_offset, h.indptr_bytes, path, "num_dst"));
  return h;
}

}  // namespace

void write_bounds(const Topology& topology, const std::string& path) {
  TopologyWriter writer(path, topology.num_src(), topology.num_dst(), false);
  std::vector<std::int64_t> bounds;
  const std::uint64_t size = kBlockBytes / sizeof(std::int64_t);
  for (std::uint64_t first = 0; first <= topology.num_dst(); first += size) {
    const std::uint64_t last = std::min(first + size - 1, topology.num_dst());
    bounds.resize(last - first + 1);
    topology.read_bounds(first, last, bounds.data());
    writer.append_indptr(bounds.data(), bounds.size());
  }
  writer.finish();
}

TopologyWriter::TopologyWriter(const std::string& path, std::uint64_t num_src,
                               std::uint64_t num_dst, bool has_indices)
    : header_(make_header(path, num_src, num_dst)),
      file_(std::make_shared<File>(File::create(path))),
      indices_(file_, header_.indices_offset) {
  if (!has_indices) header_.index_bytes = 0;
}

void TopologyWriter::append_indptr(const std::int64_t* values, std::size_t count) {
  if (count == 0) return;
  file_->write_at(values, 8 * count, header_.indptr_offset + 8 * indptr_written_);
  indptr_written_ += count;
  last_indptr_ = values[count - 1];
}

void TopologyWriter::append_indices(const void* values, std::size_t count) {
  header_.num_edges += count;
  indices_.append(values, count * header_.index_bytes);
}

void TopologyWriter::finish() {
  const std::uint64_t expected = header_.num_dst + 1;
  if (indptr_written_ != expected) {
    throw invalid(file_->path(), ": indptr: found ", indptr_written_, " values, expected ",
                  expected);
  }
  if (header_.index_bytes == 0) header_.num_edges = static_cast<std::uint64_t>(last_indptr_);
  if (header_.num_edges != static_cast<std::uint64_t>(last_indptr_)) {
    throw invalid(file_->path(), ": indices: found ", header_.num_edges, " values, expected ",
                  last_indptr_, ", where indptr ends");
  }
  header_.indices_bytes =
      checked_mul(header_.num_edges, header_.index_bytes, file_->path(), "num_edges");
  indices_.finish(&header_, sizeof header_);
}

}  // namespace gz
