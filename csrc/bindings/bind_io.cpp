// Reading past the page cache: probing a disk, planning reads, gathering rows from a file.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/arrays.h"
#include "gather/disk_gather.h"
#include "gather/read_plan.h"
#include "io/probe.h"

namespace gz::python {

using namespace nb::literals;

namespace {

ReaderKind reader_named(const std::string& name) {
  if (name == "auto") return ReaderKind::kAuto;
  if (name == "uring") return ReaderKind::kUring;
  if (name == "pool") return ReaderKind::kPool;
  throw std::invalid_argument("reader: found '" + name + "', expected 'auto', 'uring' or 'pool'");
}

std::string name_of(ReaderKind kind) { return kind == ReaderKind::kUring ? "uring" : "pool"; }

std::uint64_t checked_alignment(std::uint64_t alignment) {
  if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
    throw std::invalid_argument("alignment: found " + std::to_string(alignment) +
                                ", expected a power of two");
  }
  return alignment;
}

// For each read: offset, size, first and last target; for each target: row, request, index.
std::pair<Int64Tensor, Int64Tensor> plan_reads(const std::vector<Int64Array>& rows,
                                               const RowLayout& layout, const ReadLimits& limits) {
  std::vector<RowRequest> requests;
  for (const Int64Array& wanted : rows) requests.push_back({as_span(wanted), {}, nullptr});
  ReadPlan plan;
  plan.build(layout, requests, limits);
  Buffer<std::int64_t> reads, targets;
  for (const PlannedRead& read : plan.reads()) {
    reads.push_back(static_cast<std::int64_t>(read.offset));
    reads.push_back(static_cast<std::int64_t>(read.size));
    reads.push_back(read.first);
    reads.push_back(read.last);
  }
  for (std::int64_t i = 0; i < plan.num_targets(); ++i) {
    const RowTarget target = plan.target(i);
    for (const std::int64_t value : {target.row, target.request, target.index}) {
      targets.push_back(value);
    }
  }
  return {to_tensor(std::move(reads)), to_tensor(std::move(targets))};
}

ReadStats gather(DiskGather& self, const ColumnFile& column, const std::vector<Int64Array>& rows,
                 const std::vector<MutableByteRows>& outs,
                 const std::optional<std::vector<Int64Array>>& positions, std::uint64_t merge_gap,
                 std::uint64_t max_read) {
  if (outs.size() != rows.size() || (positions && positions->size() != rows.size())) {
    throw std::invalid_argument("outs and positions: expected one for each list of rows");
  }
  std::vector<RowRequest> requests;
  for (std::size_t k = 0; k < rows.size(); ++k) {
    const auto places = static_cast<std::int64_t>(outs[k].shape(0));
    const std::span<const std::int64_t> to =
        positions ? as_span((*positions)[k]) : std::span<const std::int64_t>{};
    const std::string name = "outs[" + std::to_string(k) + "]";
    if (static_cast<std::int64_t>(outs[k].shape(1)) != column.layout.row_bytes ||
        (!positions && outs[k].shape(0) != rows[k].size())) {
      throw std::invalid_argument(name + ": its shape must be [rows, bytes per row]");
    }
    for (const std::int64_t place : to) {
      if (place < 0 || place >= places) {
        throw std::out_of_range(name + ": found position " + std::to_string(place) +
                                ", expected 0 <= position < " + std::to_string(places));
      }
    }
    requests.push_back({as_span(rows[k]), to, reinterpret_cast<std::byte*>(outs[k].data())});
  }
  const nb::gil_scoped_release released;
  const GatherResult result = self.gather(column, requests, {merge_gap, max_read, 1});
  for (const std::exception_ptr& error : result.errors) {
    if (error) std::rethrow_exception(error);
  }
  return result.stats;
}

}  // namespace

void init_io(nb::module_& m) {
  nb::class_<DiskSpeed>(m, "DiskSpeed", "What probe_disk() measured.")
      .def_ro("random_iops", &DiskSpeed::random_iops)
      .def_ro("bytes_per_second", &DiskSpeed::bytes_per_second)
      .def_ro("direct", &DiskSpeed::direct)
      .def_ro("file_bytes", &DiskSpeed::file_bytes)
      .def_ro("depth", &DiskSpeed::depth)
      .def_ro("random_reads", &DiskSpeed::random_reads)
      .def_ro("sequential_reads", &DiskSpeed::sequential_reads);
  m.def(
      "probe_disk",
      [](const std::string& path, double seconds, int depth, bool direct,
         const std::string& reader) {
        const ProbeOptions options{{reader_named(reader), depth}, seconds, direct};
        const nb::gil_scoped_release released;
        return probe_disk(path, options);
      },
      "path"_a, "seconds"_a = 0.6, "depth"_a = 128, "direct"_a = true, "reader"_a = "auto",
      "Random reads a second and bytes a second of the disk under a file, by reading it.");
  m.def("uring_refusal", &uring_refusal,
        "Why io_uring cannot be used in this process; empty where it can.");
  m.def(
      "plan_reads",
      [](const std::vector<Int64Array>& rows, std::int64_t num_rows, std::int64_t row_bytes,
         std::int64_t row_stride, std::uint64_t data_offset, std::uint64_t file_bytes,
         std::uint64_t merge_gap, std::uint64_t max_read, std::uint64_t alignment) {
        return plan_reads(rows, {data_offset, num_rows, row_bytes, row_stride, file_bytes},
                          {merge_gap, max_read, checked_alignment(alignment)});
      },
      "rows"_a, "num_rows"_a, "row_bytes"_a, "row_stride"_a, "data_offset"_a, "file_bytes"_a,
      "merge_gap"_a, "max_read"_a, "alignment"_a,
      "The reads for these lists of rows, flat: offset, size, first and last target of each; and "
      "the "
      "targets, flat: row, list, index into it.");

  nb::class_<ColumnFile>(m, "ColumnFile", "The rows of a file, for reading past the page cache.")
      .def_static("of", &ColumnFile::of, "column"_a, "direct"_a = true)
      .def_static(
          "open",
          [](const std::string& path, std::uint64_t data_offset, std::int64_t num_rows,
             std::int64_t row_bytes, std::int64_t row_stride, bool direct) {
            ColumnFile found{DirectFile::open(path, direct), {}};
            found.layout = {data_offset, num_rows, row_bytes, row_stride, found.file->size()};
            return found;
          },
          "path"_a, "data_offset"_a, "num_rows"_a, "row_bytes"_a, "row_stride"_a, "direct"_a = true)
      .def_prop_ro("direct", [](const ColumnFile& c) { return c.file->direct(); })
      .def_prop_ro(
          "alignment", [](const ColumnFile& c) { return c.file->alignment(); },
          "What direct reads are aligned to; 1 without them.");

  nb::class_<ReadStats>(m, "ReadStats", "What a gather from a file read, and how long it took.")
      .def_ro("rows", &ReadStats::rows)
      .def_ro("unique_rows", &ReadStats::unique_rows)
      .def_ro("reads", &ReadStats::reads)
      .def_ro("cached_reads", &ReadStats::cached_reads)
      .def_ro("bytes", &ReadStats::bytes)
      .def_ro("useful_bytes", &ReadStats::useful_bytes)
      .def_ro("plan_seconds", &ReadStats::plan_seconds)
      .def_ro("read_seconds", &ReadStats::read_seconds);

  nb::class_<DiskGather>(m, "DiskGather", "Gathers rows of files for many batches at once.")
      .def(
          "__init__",
          [](DiskGather* self, const std::string& reader, int depth, int num_threads,
             std::uint64_t buffer_bytes) {
            new (self) DiskGather({{reader_named(reader), depth}, num_threads, buffer_bytes});
          },
          "reader"_a = "auto", "depth"_a = 128, "num_threads"_a = 0,
          "buffer_bytes"_a = std::uint64_t{32} << 20)
      .def_prop_ro("reader", [](DiskGather& g) { return name_of(g.reader_kind()); })
      .def("gather", &gather, "column"_a, "rows"_a, "outs"_a, "positions"_a = nb::none(),
           "merge_gap"_a = std::uint64_t{16} << 10, "max_read"_a = std::uint64_t{512} << 10,
           "Copies the rows of list k to positions k (0, 1, 2 … when None) of outs[k] [places, "
           "bytes per row]. Raises the OSError of the first list that a row could not be read "
           "for; the other lists are complete.");
}

}  // namespace gz::python
