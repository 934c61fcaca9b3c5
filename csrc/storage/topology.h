// One `.gl` file: the in-neighbours of every destination node, compressed sparse column.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "io/mapping.h"
#include "storage/block_writer.h"
#include "storage/layout.h"

namespace gz {

// Bytes per neighbour id: 4 when every source id fits 32 bits, else 8.
std::uint32_t index_bytes_for(std::uint64_t num_src) noexcept;

// An opened topology. Opening reads the header and maps the file; no data page is touched.
// Thread safety: immutable.
class Topology {
 public:
  static std::shared_ptr<const Topology> open(const std::string& path);

  std::uint64_t num_src() const noexcept { return header_.num_src; }
  std::uint64_t num_dst() const noexcept { return header_.num_dst; }
  std::uint64_t num_edges() const noexcept { return header_.num_edges; }
  // 0: the neighbours lie elsewhere; there are only bounds.
  std::uint32_t index_bytes() const noexcept { return header_.index_bytes; }
  const std::string& path() const noexcept { return file_->path(); }
  const std::shared_ptr<const File>& file() const noexcept { return file_; }

  // [num_dst + 1]: the neighbours of v are indices[indptr[v] … indptr[v + 1]).
  const std::int64_t* indptr() const noexcept {
    return reinterpret_cast<const std::int64_t*>(map_->data() + header_.indptr_offset);
  }
  const void* indices() const noexcept { return map_->data() + header_.indices_offset; }

  // Raises FormatError when the file has another size than when it was opened.
  void check_size() const;

  // The one check of the bounds, for whoever walks over neighbourhoods one after the other: raises
  // FormatError unless indptr[first … last] are numbers that rise from 0 to num_edges(), as far as
  // these show. Compares and never subtracts: damaged bounds differ by more than 64 bits hold. They
  // are copied to `out`, unless that is null. Raises OsError where they cannot be read. REQUIRES
  // first <= last <= num_dst().
  void read_bounds(std::uint64_t first, std::uint64_t last, std::int64_t* out) const;
  // The node whose neighbours slot[i] is among, in out[i]; raises as read_bounds() does. REQUIRES
  // slots of edges.
  void find_destinations(std::span<const std::int64_t> slot, std::int64_t* out) const;

  // Has the neighbours in `count` slots from `first` on, as far as there are any, read into the
  // page cache while the caller goes on.
  void will_need(std::uint64_t first, std::uint64_t count) const noexcept;
  // The engine's own map, out of this process's memory until it is touched again.
  void forget_pages() const noexcept { map_->forget_pages(); }
  // A fresh copy-on-write map for views that users may write to, and where the arrays lie in it.
  std::shared_ptr<const Mapping> map_for_user() const;
  std::uint64_t indptr_offset() const noexcept { return header_.indptr_offset; }
  std::uint64_t indices_offset() const noexcept { return header_.indices_offset; }

 private:
  explicit Topology(File file) : file_(std::make_shared<const File>(std::move(file))) {}
  [[noreturn]] void throw_bad_bounds(std::int64_t node) const;

  std::shared_ptr<const File> file_;
  TopologyHeader header_{};
  std::shared_ptr<const Mapping> map_;
};

// Writes a file with the bounds of a topology and without its neighbours. Raises as read_bounds().
void write_bounds(const Topology& topology, const std::string& path);

// Writes indptr and indices, each front to back in as many pieces as the caller likes, in turns or
// from two threads. The number of edges is known at the end.
class TopologyWriter {
 public:
  TopologyWriter(const std::string& path, std::uint64_t num_src, std::uint64_t num_dst,
                 bool has_indices = true);

  void append_indptr(const std::int64_t* values, std::size_t count);
  // `values` are in the width index_bytes() says.
  void append_indices(const void* values, std::size_t count);
  // REQUIRES num_dst + 1 values of indptr, the last of them the number of indices.
  void finish();
  std::uint32_t index_bytes() const noexcept { return header_.index_bytes; }

 private:
  TopologyHeader header_{};
  std::shared_ptr<File> file_;
  BlockWriter indices_;
  std::uint64_t indptr_written_ = 0;
  std::int64_t last_indptr_ = 0;
};

}  // namespace gz
