#include "build/edge_source.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/errors.h"

namespace gz {

void check_end(std::uint64_t edge, const char* end, std::int64_t id, std::uint64_t num_nodes) {
  if (id >= 0 && static_cast<std::uint64_t>(id) < num_nodes) return;
  throw std::out_of_range(
      text_of("edge ", edge, ": ", end, " id: found ", id, ", expected 0 <= id < ", num_nodes));
}

namespace {

class EdgeSource final : public RecordSource {
 public:
  EdgeSource(const BuildPlan& plan, NodeMarks* marks, const EdgeSlab& slab, EdgeCounts& counts,
             int threads)
      : plan_(plan),
        marks_(marks),
        slab_(slab),
        counts_(counts),
        slices_(static_cast<std::size_t>(threads)) {}

  std::int64_t num_items() const override { return slab_.end - slab_.begin; }

  std::int64_t keys(int slice_number, std::int64_t begin, std::int64_t end,
                    std::uint64_t* keys) override {
    Slice& slice = slices_[static_cast<std::size_t>(slice_number)];
    slab_.src.read(slab_.begin + begin, slab_.begin + end, slice.src);
    slab_.dst.read(slab_.begin + begin, slab_.begin + end, slice.dst);
    if (counting_) {
      check(slice, begin, end);
      if (slice.bad >= 0) return 0;
    }
    const std::int64_t n = end - begin;
    std::int64_t count = 0;
    std::uint64_t reverses = 0;
    const bool drop = plan_.options.self_loops == SelfLoops::kRemove;
    if (!plan_.options.undirected && !drop) {
      std::copy_n(slice.dst, count = n, keys);
    } else {
      each_record(slice, n, [&](std::int64_t, std::uint64_t, std::uint64_t dst, bool is_reverse) {
        keys[count++] = dst;
        reverses += is_reverse;
      });
    }
    if (counting_) {
      for (std::int64_t i = 0; i < n; ++i) {
        const bool loop = is_loop(slice.src[i], slice.dst[i]);
        slice.loops += loop;
        if (marks_ != nullptr && !(loop && drop)) marks_->mark(slice.src[i]);
      }
      slice.edges += static_cast<std::uint64_t>(count) - reverses;
      slice.reverses += reverses;
    }
    return count;
  }

  void counted() override {
    counting_ = false;
    for (const Slice& slice : slices_) {
      if (slice.bad >= 0) refuse(slice.bad);
    }
    for (Slice& slice : slices_) {
      counts_.loops += slice.loops;
      counts_.edges += std::exchange(slice.edges, counts_.edges);
      counts_.reverses +=
          std::exchange(slice.reverses, plan_.numbering.reverse_base + counts_.reverses);
    }
  }

  const Byte* records(int slice_number, std::int64_t begin, std::int64_t end,
                      Byte* space) override {
    Slice& slice = slices_[static_cast<std::size_t>(slice_number)];
    Byte* record = space;
    if (plan_.packed) {
      each_record(slice, end - begin,
                  [&, packed = *plan_.packed](std::int64_t, std::uint64_t src, std::uint64_t dst,
                                              bool is_reverse) {
                    packed.put(record, src, dst, is_reverse);
                    record += packed.size();
                  });
      return space;
    }
    const RecordLayout& layout = plan_.layout;
    const std::uint32_t size = layout.size();
    each_record(slice, end - begin,
                [&](std::int64_t i, std::uint64_t src, std::uint64_t dst, bool is_reverse) {
                  layout.set_ends(record, src, dst);
                  layout.set_number(record, (is_reverse ? slice.reverses : slice.edges)++);
                  for (std::size_t c = 0; c < plan_.options.columns.size(); ++c) {
                    const std::uint32_t row = layout.column_bytes(c);
                    copy_row(record + layout.column_at(c),
                             slab_.columns[c] + (slab_.begin + begin + i) * row, row);
                  }
                  record += size;
                });
    return space;
  }

 private:
  struct Slice {
    std::uint64_t loops = 0;
    std::uint64_t edges = 0;     // in the second round: the number of the next one
    std::uint64_t reverses = 0;  // likewise
    std::int64_t bad = -1;       // the first edge that is refused
    std::uint64_t src[kPiece];
    std::uint64_t dst[kPiece];
  };

  bool is_loop(std::uint64_t src, std::uint64_t dst) const noexcept {
    return !plan_.options.bipartite && src == dst;
  }

  // Calls put(i, src, dst, is_reverse) for the records of the slice's first `count` edges.
  template <class Put>
  void each_record(const Slice& slice, std::int64_t count, const Put& put) const {
    const bool drop = plan_.options.self_loops == SelfLoops::kRemove;
    const bool both = plan_.options.undirected;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint64_t src = slice.src[i], dst = slice.dst[i];
      const bool loop = is_loop(src, dst);
      if (loop && drop) continue;
      put(i, src, dst, false);
      if (both && !loop) put(i, dst, src, true);
    }
  }

  void check(Slice& slice, std::int64_t begin, std::int64_t end) const noexcept {
    if (slice.bad >= 0) return;
    std::uint64_t worst_src = 0, worst_dst = 0;
    for (std::int64_t i = 0; i < end - begin; ++i) {
      worst_src = std::max(worst_src, slice.src[i]);
      worst_dst = std::max(worst_dst, slice.dst[i]);
    }
    bool good = worst_src < plan_.options.num_src && worst_dst < plan_.options.num_dst;
    const Byte* nans = nullptr;
    std::uint32_t row = 0;
    if (plan_.options.time_column) {
      row = plan_.layout.column_bytes(*plan_.options.time_column);
      nans = slab_.columns[*plan_.options.time_column] + slab_.begin * row;
      for (std::int64_t i = begin; i < end && good; ++i) good = !plan_.times.is_nan(nans + i * row);
    }
    if (good) return;
    for (std::int64_t i = 0; i < end - begin && slice.bad < 0; ++i) {
      if (slice.src[i] >= plan_.options.num_src || slice.dst[i] >= plan_.options.num_dst ||
          (nans != nullptr && plan_.times.is_nan(nans + (begin + i) * row))) {
        slice.bad = begin + i;
      }
    }
  }

  [[noreturn]] void refuse(std::int64_t at) const {
    const std::uint64_t edge = counts_.input + static_cast<std::uint64_t>(at);
    std::uint64_t id;
    slab_.src.read(slab_.begin + at, slab_.begin + at + 1, &id);
    check_end(edge, "source", static_cast<std::int64_t>(id), plan_.options.num_src);
    slab_.dst.read(slab_.begin + at, slab_.begin + at + 1, &id);
    check_end(edge, "destination", static_cast<std::int64_t>(id), plan_.options.num_dst);
    throw invalid("edge ", edge, ": ", plan_.options.columns[*plan_.options.time_column].name,
                  ": found NaN, expected a time");
  }

  const BuildPlan& plan_;
  NodeMarks* marks_;
  const EdgeSlab& slab_;
  EdgeCounts& counts_;
  std::vector<Slice> slices_;
  bool counting_ = true;
};

}  // namespace

std::unique_ptr<RecordSource> edge_source(const BuildPlan& plan, NodeMarks* marks,
                                          const EdgeSlab& slab, EdgeCounts& counts, int threads) {
  return std::make_unique<EdgeSource>(plan, marks, slab, counts, threads);
}

}  // namespace gz
