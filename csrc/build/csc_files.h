// The files of one edge type, written front to back: topology, edge ids, attributes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "arrays/packed_ints.h"
#include "arrays/parallel.h"
#include "base/chunk_sizes.h"
#include "build/build_plan.h"
#include "build/csc_builder.h"
#include "build/degrees.h"
#include "build/edge_source.h"
#include "build/node_marks.h"
#include "build/runs.h"
#include "build/slab.h"
#include "storage/column.h"
#include "storage/topology.h"

namespace gz {

class CscFiles {
 public:
  // `num_edges` and `num_reverses` are those that came in; `marks` of the destinations, or null.
  CscFiles(const BuildPlan& plan, const CscPaths& paths, std::uint64_t num_edges,
           std::uint64_t num_reverses, ScratchSpace& space, NodeMarks* marks)
      : layout_(plan.layout),
        numbering_(plan.numbering),
        num_ids_(num_edges + num_reverses + numbering_.end - numbering_.loop_base),
        num_edges_(num_edges),
        num_reverses_(num_reverses),
        marks_(marks),
        topology_(paths.topology, plan.options.num_src, plan.options.num_dst),
        id_bytes_(num_ids_ <= (1ULL << 31) ? 4 : 8) {
    const CscOptions& options = plan.options;
    topology_.append_indptr(&indptr_, 1);
    if (options.edge_ids) {
      const DType& dtype = dtype_named(id_bytes_ == 4 ? "int32" : "int64");
      ids_ = std::make_unique<ColumnWriter>(paths.edge_id, dtype, std::vector<std::uint64_t>{0});
    }
    for (std::size_t c = 0; c < options.columns.size(); ++c) {
      const PayloadColumn& column = options.columns[c];
      std::vector<std::uint64_t> shape{0};
      shape.insert(shape.end(), column.item_shape.begin(), column.item_shape.end());
      columns_.push_back(
          std::make_unique<ColumnWriter>(paths.columns[c], *column.dtype, std::move(shape)));
    }
    if (options.coalesce && options.edge_ids) {
      const std::string name = std::to_string(++space.files) + "-numbers";
      gappy_ = std::make_unique<File>(File::temporary(space.directory + "/" + name));
    }
  }

  // The next edges and degrees; each file by a thread of its own.
  void write(const Slab& slab, int threads) {
    const auto num_files = static_cast<std::int64_t>(3 + columns_.size());
    parallel_for(num_files, 1, threads, [&](std::int64_t file, std::int64_t) {
      if (file == 0) return write_degrees(slab);
      for (const Slab::Part& part : slab.parts) {
        if (file == 1) {
          topology_.append_indices(slab.indices(part), part.count);
        } else if (file == 2) {
          if (ids_) write_numbers(slab.numbers(part), part.count);
        } else {
          const auto c = static_cast<std::size_t>(file - 3);
          columns_[c]->append(slab.column(c, part), part.count * layout_.column_bytes(c));
        }
      }
    });
    for (const Slab::Part& part : slab.parts) written_ += part.count;
  }

  // Completes and syncs all files. `room` bytes of memory may be used for numbering.
  void finish(std::uint64_t room, int threads, const Checkpoint& checkpoint) {
    if (gappy_) rank_numbers(room, threads, checkpoint);
    topology_.finish();
    if (ids_) {
      ids_->set_num_rows(written_);
      ids_->finish();
    }
    for (const std::unique_ptr<ColumnWriter>& column : columns_) {
      column->set_num_rows(written_);
      column->finish();
    }
  }

  std::uint64_t num_edges() const noexcept { return written_; }
  // Every slot holds the edge of its number: the file of edge ids, if any, says nothing.
  bool ids_are_slots() const noexcept { return ids_are_slots_; }
  const DegreeCounts& degrees() const noexcept { return degrees_; }

 private:
  static constexpr std::uint64_t kBlock = 8192;  // numbers that there is room for at a time

  static std::uint64_t block_size() { return std::min(kBlock, chunk_sizes.csc_numbers); }

  void write_degrees(const Slab& slab) {
    std::int64_t block[kBlock];
    const std::uint64_t most = block_size();
    std::size_t filled = 0;
    const std::span<const std::uint64_t> degrees = slab.degrees.span();
    for (std::size_t d = 0; d < degrees.size(); ++d) {
      degrees_.add(degrees[d]);
      if (degrees[d] > 0 && marks_ != nullptr) marks_->mark(slab.first_dst + d);
      indptr_ += static_cast<std::int64_t>(degrees[d]);
      block[filled++] = indptr_;
      if (filled < most && d + 1 < degrees.size()) continue;
      topology_.append_indptr(block, filled);
      filled = 0;
    }
  }

  void write_numbers(const Byte* numbers, std::uint64_t count) {
    const std::uint32_t bytes = layout_.number_bytes();
    std::uint64_t ids[kBlock];
    const std::uint64_t most = block_size();
    for (std::uint64_t at = 0; at < count; at += most) {
      const std::uint64_t n = std::min(most, count - at);
      const auto as = bytes == 8 ? IdArray::of<std::uint64_t> : IdArray::of<std::uint32_t>;
      as(numbers + at * bytes, 1).read(0, static_cast<std::int64_t>(n), ids);
      // Without reverses and added loops, numbers are ids.
      for (std::uint64_t i = 0; i < n && numbering_.end > numbering_.reverse_base; ++i) {
        if (ids[i] >= numbering_.loop_base) {
          // Slots have added loops in the order of their numbers.
          const std::uint64_t loop = gappy_ ? ids[i] - numbering_.loop_base : loops_added_++;
          ids[i] = num_edges_ + num_reverses_ + loop;
        } else if (ids[i] >= numbering_.reverse_base) {
          ids[i] = ids[i] - numbering_.reverse_base + num_edges_;
        }
      }
      if (gappy_) {
        gappy_->write_at(ids, n * sizeof ids[0], gappy_written_);
        gappy_written_ += n * sizeof ids[0];
      } else {
        write_ids(ids, n);
      }
    }
  }

  void write_ids(std::uint64_t* ids, std::uint64_t count) {
    bool same = true;
    for (std::uint64_t i = 0; i < count; ++i) same &= ids[i] == ids_written_ + i;
    ids_are_slots_ &= same;
    ids_written_ += count;
    if (id_bytes_ == 4) {
      // Each id moves to an earlier place, or stays.
      auto* const narrow = reinterpret_cast<Byte*>(ids);
      for (std::uint64_t i = 0; i < count; ++i) std::memcpy(narrow + 4 * i, ids + i, 4);
    }
    ids_->append(ids, count * id_bytes_);
  }

  void rank_numbers(std::uint64_t room, int threads, const Checkpoint& checkpoint) {
    // A window of numbers at a time. Numbers that have their ids are below every later window.
    const std::uint64_t window = std::max<std::uint64_t>(room / 16 * 64, 64);  // of RankedBits
    const std::uint64_t num_windows = (num_ids_ + window - 1) / window;
    const std::uint64_t chunk =
        std::min(std::max<std::uint64_t>(room / 64, 64), chunk_sizes.ranked_numbers);
    Buffer<std::int64_t> numbers(static_cast<std::int64_t>(std::min(chunk, written_)));
    const auto each_chunk = [&](std::uint64_t pass, auto&& body) {
      for (std::uint64_t at = 0; at < written_; at += chunk) {
        checkpoint(pass * written_ + at, 2 * num_windows * written_);
        const std::uint64_t n = std::min(chunk, written_ - at);
        numbers.resize(static_cast<std::int64_t>(n));
        gappy_->read_at(numbers.data(), n * sizeof numbers[0], at * sizeof numbers[0]);
        body(at);
      }
    };
    std::int64_t rank = 0;
    for (std::uint64_t w = 0; w < num_windows; ++w) {
      const auto low = static_cast<std::int64_t>(w * window);
      RankedBits ranks(static_cast<std::int64_t>(std::min(window, num_ids_ - w * window)), low);
      each_chunk(2 * w, [&](std::uint64_t) { ranks.add(numbers.span(), threads); });
      const std::int64_t count = ranks.rank();
      each_chunk(2 * w + 1, [&](std::uint64_t at) {
        for (std::int64_t i = 0; i < numbers.size(); ++i) {
          const std::int64_t number = numbers[i] - low;
          if (number >= 0 && number < ranks.size()) numbers[i] = rank + ranks.before(number);
        }
        if (w + 1 < num_windows) {
          gappy_->write_at(numbers.data(), numbers.span().size_bytes(), at * sizeof numbers[0]);
        } else {
          write_ids(reinterpret_cast<std::uint64_t*>(numbers.data()), numbers.span().size());
        }
      });
      rank += count;
    }
  }

  const RecordLayout& layout_;
  const Numbering& numbering_;
  const std::uint64_t num_ids_;  // that there can be
  const std::uint64_t num_edges_;
  const std::uint64_t num_reverses_;
  NodeMarks* marks_;
  TopologyWriter topology_;
  std::uint32_t id_bytes_;
  std::unique_ptr<ColumnWriter> ids_;  // null: not wanted
  std::vector<std::unique_ptr<ColumnWriter>> columns_;
  // Coalescing leaves gaps in the numbers, which are closed when all are known.
  std::unique_ptr<File> gappy_;
  std::uint64_t gappy_written_ = 0;
  std::uint64_t loops_added_ = 0;
  std::uint64_t written_ = 0;
  std::int64_t indptr_ = 0;
  std::uint64_t ids_written_ = 0;
  bool ids_are_slots_ = true;
  DegreeCounts degrees_;
};

}  // namespace gz
