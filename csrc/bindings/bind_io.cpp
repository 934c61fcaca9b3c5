// Reading past the page cache: probing a disk, planning reads, gathering rows from a file.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "arrays/buffer.h"
#include "base/chunk_sizes.h"
#include "base/errors.h"
#include "bindings/arrays.h"
#include "gather/disk_gather.h"
#include "gather/paged_rows.h"
#include "gather/row_order.h"
#include "io/probe.h"
#include "io/process.h"
#include "storage/column.h"

namespace gz::python {

using namespace nb::literals;

namespace {

std::string name_of(ReaderKind kind) { return kind == ReaderKind::kUring ? "uring" : "pool"; }

ReadStats gather(DiskGather& self, const ColumnFile& column, const std::vector<Int64Array>& rows,
                 const std::vector<MutableByteRows>& outs,
                 const std::optional<std::vector<Int64Array>>& positions, std::uint64_t merge_gap,
                 std::uint64_t max_read) {
  if (outs.size() != rows.size() || (positions && positions->size() != rows.size())) {
    throw invalid("outs and positions: expected one for each list of rows");
  }
  std::vector<RowRequest> requests;
  for (std::size_t k = 0; k < rows.size(); ++k) {
    const auto places = static_cast<std::int64_t>(outs[k].shape(0));
    const std::span<const std::int64_t> to =
        positions ? as_span((*positions)[k]) : std::span<const std::int64_t>{};
    if (static_cast<std::int64_t>(outs[k].shape(1)) != column.layout.row_bytes ||
        (!positions && outs[k].shape(0) != rows[k].size())) {
      throw invalid("outs[", k, "]: its shape must be [rows, bytes per row]");
    }
    check_range("positions", "position", to, places);
    requests.push_back({as_span(rows[k]), to, reinterpret_cast<std::byte*>(outs[k].data())});
  }
  const GatherResult result = self.gather(column, requests, {merge_gap, max_read, 1});
  for (const std::exception_ptr& error : result.errors) {
    if (error) std::rethrow_exception(error);
  }
  return result.stats;
}

}  // namespace

void init_io(nb::module_& m) {
  m.attr("system") = system_name();
  nb::class_<DiskSpeed>(m, "DiskSpeed", "What probe_disk() measured.")
      .def_ro("random_iops", &DiskSpeed::random_iops)
      .def_ro("bytes_per_second", &DiskSpeed::bytes_per_second)
      .def_ro("direct", &DiskSpeed::direct)
      .def_ro("file_bytes", &DiskSpeed::file_bytes)
      .def_ro("depth", &DiskSpeed::depth);
  m.def(
      "probe_disk",
      [](const std::string& path, double seconds, int depth, const std::string& reader) {
        return probe_disk(path, {{reader_named(reader, "reader"), depth}, seconds});
      },
      "path"_a, "seconds"_a = 0.6, "depth"_a = 128, "reader"_a = "auto", kWithoutGil,
      "Random reads a second and bytes a second of the disk under a file, by reading it.");
  m.def("uring_refusal", &uring_refusal,
        "Why io_uring cannot be used in this process; empty where it can.");
  m.def(
      "costs",
      [] {
        return std::map<std::string, std::int64_t>{{"frame", RowCache::kFrameBytes},
                                                   {"piece", chunk_sizes.piece_bytes},
                                                   {"window_key", PagedRows::kKeyBytes}};
      },
      "Bytes that PagedRows take beside rows, of each frame, and of each row of a window while "
      "those asked for are sorted; and bytes of rows that a batch without a window reads at a "
      "time.");
  nb::class_<ColumnFile>(m, "ColumnFile", "The rows of a file, for reading past the page cache.")
      .def_static(
          "of", [](const Column& column) { return ColumnFile::of(column); }, "column"_a)
      .def_static(
          "of_indices", [](const Topology& topology) { return ColumnFile::of_indices(topology); },
          "topology"_a, "The neighbours of a topology: row i is what lies in slot i.")
      .def_static(
          "open",
          [](const std::string& path, std::uint64_t data_offset, std::int64_t num_rows,
             std::int64_t row_bytes, std::int64_t row_stride) {
            ColumnFile found{DirectFile::open(path), {}};
            found.layout = {data_offset, num_rows, row_bytes, row_stride, found.file->size()};
            return found;
          },
          "path"_a, "data_offset"_a, "num_rows"_a, "row_bytes"_a, "row_stride"_a);

  nb::class_<ReadStats>(m, "ReadStats", "What was read from disk for those who asked for rows.")
      .def(nb::init<>())
      .def_ro("rows", &ReadStats::rows, "Asked for; once for each batch that wants them.")
      .def_ro("hits", &ReadStats::hits, "Of those, found in memory.")
      .def_ro("reads", &ReadStats::reads, "Requests to the disk.")
      .def_ro("bytes", &ReadStats::bytes, "What they read.")
      .def_ro("useful_bytes", &ReadStats::useful_bytes, "Of that, in rows asked for.")
      .def_ro("seconds", &ReadStats::seconds, "From the first read to the last row in its place.")
      .def("__add__", [](ReadStats self, const ReadStats& other) { return self += other; });
  nb::class_<DiskGather>(m, "DiskGather", "Gathers rows of files for many batches at once.")
      .def(
          "__init__",
          [](DiskGather* self, const std::string& reader, int depth, std::uint64_t buffer_bytes) {
            new (self) DiskGather({{reader_named(reader, "reader"), depth}, buffer_bytes});
          },
          "reader"_a = "auto", "depth"_a = 128, "buffer_bytes"_a = std::uint64_t{32} << 20)
      .def_prop_ro("reader", [](DiskGather& g) { return name_of(g.reader_kind()); })
      .def("gather", &gather, "column"_a, "rows"_a, "outs"_a, "positions"_a = nb::none(),
           "merge_gap"_a = ReadLimits{}.merge_gap, "max_read"_a = ReadLimits{}.max_read,
           kWithoutGil,
           "Copies the rows of list k to positions k (0, 1, 2 … when None) of outs[k] [places, "
           "bytes per row]. Raises the OSError of the first list that a row could not be read "
           "for; the other lists are complete.");

  nb::class_<RowOrder>(m, "RowOrder", "Which rows of a file lie once more, in another order.")
      .def(nb::init<std::span<const std::int32_t>, std::int64_t, int>(), "again"_a, "num_rows"_a,
           "group_bits"_a = 0, kWithoutGil,
           "Of `num_rows` rows these groups of 2^group_bits, in their order there.")
      .def_static("num_bytes", &RowOrder::num_bytes, "num_rows"_a, "num_again"_a,
                  "group_bits"_a = 0,
                  "Bytes of one for `num_rows` rows, of which `num_again` groups lie once more.")
      .def_prop_ro("num_rows", &RowOrder::num_rows)
      .def_prop_ro("num_again", &RowOrder::num_again)
      .def(
          "ranks",
          [](const RowOrder& order, Int64Span rows) {
            return fill_tensor(rows.size(), [&](std::int64_t* ranks) {
              check_range("rows", "row", rows, order.num_rows());
              std::ranges::copy(rows, ranks);
              order.find_ranks({ranks, rows.size()});
            });
          },
          "rows"_a,
          "Where rows would lie if all lay once: those that lie once more, then the others.");

  nb::class_<PagedRows>(m, "PagedRows", "Rows of files, of which memory holds a part.")
      .def(
          "__init__",
          [](PagedRows* self, std::int64_t num_rows, ColumnFile column,
             std::shared_ptr<DiskGather> reader, std::int64_t num_resident, int group_bits,
             std::uint64_t merge_gap, std::int64_t num_frames) {
            new (self) PagedRows({num_rows, group_bits, num_resident}, num_frames,
                                 std::move(column), std::move(reader), {.merge_gap = merge_gap});
          },
          "num_rows"_a, "column"_a, "reader"_a, "num_resident"_a = 0, "group_bits"_a = 0,
          "merge_gap"_a = ReadLimits{}.merge_gap, "num_frames"_a = 0,
          "The first `num_resident` groups of 2^group_bits rows stay in memory once they are read. "
          "There are frames for others, which change with what is used.")
      .def_static(
          "ordered",
          [](std::shared_ptr<RowOrder> order, ColumnFile column, ColumnFile again,
             std::shared_ptr<DiskGather> reader, std::int64_t num_resident,
             std::uint64_t merge_gap) {
            const ResidentRows resident(order->num_places(), order->group_bits(), num_resident);
            return std::make_shared<PagedRows>(resident, 0, std::move(column), std::move(reader),
                                               ReadLimits{.merge_gap = merge_gap},
                                               RowCopies{std::move(order), std::move(again)});
          },
          "order"_a, "column"_a, "again"_a, "reader"_a, "num_resident"_a, "merge_gap"_a,
          "Rows of which some lie once more, in `again`; the order's first `num_resident` groups "
          "stay in memory once they are read.")
      .def_prop_ro("num_rows", &PagedRows::num_rows)
      .def_prop_ro("row_bytes", &PagedRows::row_bytes)
      .def(
          "load",
          [](PagedRows& self, std::int64_t group, std::int64_t max_rows) {
            ReadStats stats;
            group = without_gil([&] { return self.load(group, max_rows, stats); });
            const bool is_done = group >= self.resident().num_kept();
            return std::pair(is_done ? -1 : group, stats);
          },
          "group"_a, "max_rows"_a,
          "Reads what is to stay in memory from `group` on, some `max_rows` rows. The group to go "
          "on with, -1 at the end; and what was read.");
}

}  // namespace gz::python
