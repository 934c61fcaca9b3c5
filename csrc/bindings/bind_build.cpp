// Building CSC: from streams of edges into files, and from arrays in memory.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <tuple>

#include "base/errors.h"
#include "bindings/arrays.h"
#include "build/csc_builder.h"
#include "build/in_memory.h"

namespace gz::python {

using namespace nb::literals;

namespace {

using Ids = nb::ndarray<nb::ro, nb::ndim<1>, nb::device::cpu>;

IdArray ids_of(const Ids& array) {
  const auto is = [&]<class T>(T) { return array.dtype() == nb::dtype<T>(); };
  const auto as = [&]<class T>(T) { return IdArray::of<T>(array.data(), array.stride(0)); };
  if (is(std::int64_t{})) return as(std::int64_t{});
  if (is(std::int32_t{})) return as(std::int32_t{});
  if (is(std::uint64_t{})) return as(std::uint64_t{});
  if (is(std::uint32_t{})) return as(std::uint32_t{});
  throw nb::type_error("edges: expected int64, int32, uint64 or uint32 ids");
}

// Name, dtype, shape of an edge's row, and the bytes of the number 1.
using ColumnTuple = std::tuple<std::string, std::string, std::vector<std::uint64_t>, nb::bytes>;

PayloadColumn column_of(const ColumnTuple& given) {
  const auto& [name, dtype_name, shape, one] = given;
  const DType& dtype = dtype_named(dtype_name, "dtype of '" + name + "'");
  if (one.size() != dtype.item_bytes) throw invalid("columns: found a 1 of another dtype");
  const auto* const bytes = static_cast<const Byte*>(one.data());
  return {name, &dtype, shape, std::vector<Byte>(bytes, bytes + dtype.item_bytes)};
}

std::optional<Coalesce> coalesce_of(const std::string& name) {
  if (name.empty()) return std::nullopt;
  for (int i = 0; i < 5; ++i) {
    if (name == kCoalesceNames[i]) return static_cast<Coalesce>(i);
  }
  throw invalid("coalesce: found '", name, "', expected first, sum, mean, min or max");
}

SelfLoops self_loops_of(const std::string& name) {
  if (name == "keep") return SelfLoops::kKeep;
  if (name == "remove") return SelfLoops::kRemove;
  if (name == "add") return SelfLoops::kAdd;
  throw invalid("self_loops: found '", name, "', expected keep, remove or add");
}

nb::dict to_dict(const CscStatistics& found) {
  nb::dict dict;
  dict["num_input"] = found.input.input;
  dict["input_self_loops"] = found.input.loops;
  dict["reversed"] = found.input.reverses;
  dict["merged"] = found.result.merged;
  dict["self_loops_added"] = found.result.loops_added;
  dict["num_edges"] = found.num_edges;
  dict["duplicates"] = found.result.duplicates;
  dict["self_loops"] = found.result.loops;
  dict["ids_are_slots"] = found.ids_are_slots;
  dict["degree_quantiles"] = found.degree_quantiles;
  dict["scratch_bytes"] = found.scratch_bytes;
  dict["scratch_peak"] = found.scratch_peak;
  return dict;
}

}  // namespace

void init_build(nb::module_& m) {
  nb::class_<NodeMarks>(m, "NodeMarks", "Which nodes of a type have an edge: one bit each.")
      .def(nb::init<std::uint64_t>(), "num_nodes"_a)
      .def("count", &NodeMarks::count);

  nb::class_<CscBuilder>(m, "CscBuilder", "Edges in any order to CSC files, in bounded memory.")
      .def(
          "__init__",
          [](CscBuilder* self, std::uint64_t num_src, std::uint64_t num_dst,
             std::uint64_t max_edges, const std::vector<ColumnTuple>& columns,
             std::shared_ptr<NodeMarks> src_marks, std::shared_ptr<NodeMarks> dst_marks,
             bool bipartite, bool undirected, const std::string& coalesce,
             const std::string& self_loops, bool edge_ids, int time_column,
             const std::optional<Int64Array>& source_times, std::uint64_t room,
             std::string directory, int num_threads) {
            CscOptions options;
            options.num_src = num_src;
            options.num_dst = num_dst;
            options.max_edges = max_edges;
            options.bipartite = bipartite;
            options.undirected = undirected;
            options.coalesce = coalesce_of(coalesce);
            options.self_loops = self_loops_of(self_loops);
            options.edge_ids = edge_ids;
            for (const ColumnTuple& column : columns) options.columns.push_back(column_of(column));
            if (time_column >= 0) options.time_column = static_cast<std::size_t>(time_column);
            if (source_times) {
              if (source_times->size() != num_src) {
                throw invalid("source_times: expected one of each source");
              }
              options.source_times = as_span(*source_times);
              options.owner = hold(*source_times);
            }
            new (self) CscBuilder(std::move(options), {room, std::move(directory), num_threads},
                                  std::move(src_marks), std::move(dst_marks));
          },
          "num_src"_a, "num_dst"_a, "max_edges"_a, "columns"_a, "src_marks"_a.none(),
          "dst_marks"_a.none(), "bipartite"_a, "undirected"_a, "coalesce"_a, "self_loops"_a,
          "edge_ids"_a, "time_column"_a, "source_times"_exact.none(), "room"_a, "directory"_a,
          "num_threads"_a = 0)
      .def(
          "append",
          [](CscBuilder& self, const Ids& src, const Ids& dst, const std::vector<Bytes>& columns) {
            const auto& expected = self.options().columns;
            EdgeSlab slab{ids_of(src), ids_of(dst), {}, 0, static_cast<std::int64_t>(src.size())};
            if (src.size() != dst.size() || columns.size() != expected.size()) {
              throw invalid("edges: src, dst and columns differ in length");
            }
            for (std::size_t c = 0; c < columns.size(); ++c) {
              if (columns[c].size() != src.size() * expected[c].row_bytes()) {
                throw invalid("edge attribute '", expected[c].name,
                              "': found another number of rows than edges");
              }
              slab.columns.push_back(columns[c].data());
            }
            const nb::gil_scoped_release released;
            self.append(slab);
          },
          "src"_a, "dst"_a, "columns"_a,
          nb::sig("def append(self, src: typing.Any, dst: typing.Any, columns: "
                  "collections.abc.Sequence[typing.Any]) -> None"),
          "Adds edges: ids of 32 or 64 bits, and the bytes of every column's rows.")
      .def(
          "finish",
          [](CscBuilder& self, std::string topology, std::string edge_id,
             std::vector<std::string> columns, const nb::callable& progress) {
            const Checkpoint checkpoint = [&](std::uint64_t done, std::uint64_t total) {
              const nb::gil_scoped_acquire acquired;
              if (PyErr_CheckSignals() != 0) throw nb::python_error();
              progress(done, total);
            };
            return to_dict(without_gil([&] {
              return self.finish({std::move(topology), std::move(edge_id), std::move(columns)},
                                 checkpoint);
            }));
          },
          "topology"_a, "edge_id"_a, "columns"_a, "progress"_a,
          nb::sig("def finish(self, topology: str, edge_id: str, columns: "
                  "collections.abc.Sequence[str], progress: "
                  "collections.abc.Callable[[int, int], object]) -> dict[str, typing.Any]"),
          "Writes the files and says what they hold. progress(done, total) may raise to cancel.");

  m.def(
      "sort_by_destination",
      [](Int64Span src, Int64Span dst, std::int64_t num_src, std::int64_t num_dst) {
        auto [indptr, order] =
            without_gil([&] { return sort_by_destination(src, dst, num_src, num_dst); });
        return std::pair(to_tensor(std::move(indptr)), to_tensor(std::move(order)));
      },
      "src"_a, "dst"_a, "num_src"_a, "num_dst"_a,
      "indptr [num_dst + 1] and, for every CSC slot, which edge it holds [num_edges]; stable.");
}

}  // namespace gz::python
