// Gathering rows into a batch's tensors.
#include "bindings/gathered.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <tuple>

#include "arrays/parallel.h"
#include "base/errors.h"
#include "gather/dictionary.h"

namespace gz::python {

using namespace nb::literals;

namespace {

// A table, and the arrays it lies in.
struct HeldTable {
  RowTable rows;
  std::shared_ptr<const void> owner;
};

RowTable plain_rows(const ByteRows& stored) {
  if (stored.shape(1) > 1 && stored.stride(1) != 1) {
    throw invalid("table: the bytes of a row must be contiguous");
  }
  return {reinterpret_cast<const std::byte*>(stored.data()),
          static_cast<std::int64_t>(stored.shape(0)), static_cast<std::int64_t>(stored.shape(1)),
          stored.stride(0)};
}

RowTable encoded_rows(const ByteRows& stored, Encoding encoding,
                      const std::optional<FloatArray>& scale,
                      const std::optional<FloatArray>& zero_point) {
  RowTable rows = plain_rows(stored);
  const std::int64_t items = rows.row_bytes / item_bytes(encoding);
  const auto numbers = static_cast<std::size_t>(has_scales(encoding) ? items : 0);
  if (rows.row_bytes % item_bytes(encoding) != 0 || (scale ? scale->size() : 0) != numbers ||
      (zero_point ? zero_point->size() : 0) != numbers) {
    throw invalid(
        "table: expected whole items, and for int8 a scale and a zero_point for each of a row");
  }
  rows.row_bytes = items * static_cast<std::int64_t>(sizeof(float));
  rows.encoding = &kernels(encoding);
  if (scale) rows.scale = scale->data();
  if (zero_point) rows.zero_point = zero_point->data();
  return rows;
}

void check_no_dictionary(const RowTable& table, const char* name) {
  if (table.dictionary == nullptr) return;
  throw invalid(name, ": found a dictionary, expected rows");
}

// A source of the plan's, which keeps its table alive.
GatherPlan::Source source_of(GatherPlan& plan, std::size_t by, const HeldTable& table, int paged) {
  if (paged >= 0) {
    const auto p = static_cast<std::size_t>(paged);
    if (p >= plan.paged.size() || plan.paged[p].by != by) {
      throw invalid("paged: expected rows that go by the same list");
    }
  }
  plan.owners.push_back(table.owner);
  return {by, table.rows, paged};
}

}  // namespace

Int64Tensors to_tensors(std::vector<Buffer<std::int64_t>>&& buffers, Loan* loan) {
  Int64Tensors tensors;
  for (auto& buffer : buffers) tensors.append(to_tensor(std::move(buffer), loan));
  return tensors;
}

GatheredTensors GatheredTensors::of(Gathered gathered, Loan* loan) {
  GatheredTensors made{to_tensors(std::move(gathered.lists), loan), {}};
  for (auto& [rows, row_bytes] : gathered.columns) {
    const auto width = static_cast<std::size_t>(row_bytes);
    const auto height = width == 0 ? 0 : static_cast<std::size_t>(rows.size()) / width;
    made.columns.append(to_array<ByteMatrix>(std::move(rows), {height, width}, loan));
  }
  return made;
}

void init_gather(nb::module_& m) {
  nb::class_<HeldTable>(m, "RowTable", "Rows to gather from.")
      .def(
          "__init__",
          [](HeldTable* self, const ByteRows& stored, std::optional<Encoding> encoding,
             const std::optional<FloatArray>& scale, const std::optional<FloatArray>& zero_point) {
            new (self) HeldTable{
                encoding ? encoded_rows(stored, *encoding, scale, zero_point) : plain_rows(stored),
                hold(std::make_tuple(stored, scale, zero_point))};
          },
          "stored"_exact, "encoding"_a = nb::none(), "scale"_a = nb::none(),
          "zero_point"_a = nb::none(),
          "Rows as they are, uint8 [rows, bytes per row]; or encoded ones, to be decoded to "
          "float32, with a scale and a zero point for each item of a row where the encoding has "
          "them.");
  nb::class_<Dictionary>(m, "Dictionary",
                         "A column of few different values, in memory of its own; see of().")
      .def_static(
          "of",
          [](const HeldTable& column) -> std::optional<std::shared_ptr<const Dictionary>> {
            auto made = without_gil([&] { return Dictionary::of(column.rows); });
            return made == nullptr ? std::nullopt : std::optional(std::move(made));
          },
          "column"_a,
          "Of all rows, in 1, 2, 4 or 8 bits each; None where they have more than 256 different "
          "values, or not 1, 2, 4 or 8 bytes. Raises OSError where the file cannot be read.")
      .def_prop_ro("num_bytes", &Dictionary::num_bytes, "What it takes.")
      .def(
          "rows",
          [](const std::shared_ptr<const Dictionary>& self) {
            RowTable rows{nullptr, self->num_rows(), self->row_bytes(), self->row_bytes()};
            rows.dictionary = self.get();
            return HeldTable{rows, self};
          },
          "The column, to gather from.");
  nb::class_<GatheredTensors>(m, "Gathered", "What a plan has gathered.")
      .def_ro("lists", &GatheredTensors::lists, "The lists looked up, in the order of add_lookup.")
      .def_ro("columns", &GatheredTensors::columns,
              "Rows, as bytes [rows, bytes per row], in the order of add_column.");
  nb::class_<WindowRoom>(m, "WindowRoom", "What epochs under way may read ahead together.")
      .def(nb::new_([](int max_batches, std::int64_t max_bytes) {
             if (max_batches < 1) throw invalid("max_batches: expected 1 or more");
             return std::make_shared<WindowRoom>(WindowLimits{max_batches, max_bytes});
           }),
           "max_batches"_a, "max_bytes"_a)
      .def("divide_among", &WindowRoom::divide_among, "epochs"_a,
           "Tells how many are under way: windows that begin later are of the size for that.")
      .def_prop_ro(
          "max_batches", [](const WindowRoom& room) { return room.max_batches(); },
          "Of the next window, where it is the only one at a time.");
  nb::class_<GatherPlan>(m, "GatherPlan",
                         "What to gather for every batch: columns, each by one of its index lists.")
      .def(nb::init<std::size_t>(), "num_lists"_a)
      .def(
          "add_paged",
          [](GatherPlan& self, std::size_t by, std::shared_ptr<PagedRows> rows) {
            if (by >= self.num_lists) {
              throw invalid("by: expected a list that batches bring");
            }
            self.paged.push_back({by, std::move(rows)});
            return static_cast<int>(self.paged.size()) - 1;
          },
          "by"_a, "rows"_a, "Paged rows that columns come from; their number.")
      .def(
          "read_into",
          [](GatherPlan& self, std::shared_ptr<WindowRoom> windows, int max_batches) {
            self.windows = std::move(windows);
            self.max_window = std::max(1, max_batches);
          },
          "windows"_a, "max_batches"_a,
          "For how many batches paged rows are read at once, and what they may take.")
      .def(
          "add_lookup",
          [](GatherPlan& self, std::size_t by, const HeldTable& ids, int paged) {
            check_id_column(ids.rows);
            check_no_dictionary(ids.rows, "ids");
            self.lookups.push_back(source_of(self, by, ids, paged));
            return self.num_lists + self.lookups.size() - 1;
          },
          "by"_a, "ids"_a, "paged"_a = -1,
          "One more list: items of a column of int32 or int64; its number.")
      .def(
          "add_column",
          [](GatherPlan& self, std::size_t by, const HeldTable& table, int paged, int inner_of) {
            self.columns.push_back(source_of(self, by, table, paged));
            self.columns.back().inner_of = inner_of;
            return self.columns.size() - 1;
          },
          "by"_a, "table"_a, "paged"_a = -1, "inner_of"_a = -1,
          "One more column: rows of a table; its number. With the number of `paged` rows, they "
          "come from there, and the table says what becomes of them. `inner_of`: a node type, of "
          "whose nodes only those that were sampled before the last hop.")
      .def(
          "add_sum",
          [](GatherPlan& self, std::size_t by, const HeldTable& table, std::size_t edges,
             std::size_t to, bool is_mean, int paged) {
            check_no_dictionary(table.rows, "table");
            if (table.rows.encoding == nullptr && table.rows.row_bytes % 4 != 0) {
              throw invalid("table: expected rows of float32");
            }
            self.columns.push_back(source_of(self, by, table, paged));
            self.columns.back().sum = {edges, to, is_mean};
            return self.columns.size() - 1;
          },
          "by"_a, "table"_a, "edges"_a, "to"_a, "is_mean"_a = false, "paged"_a = -1,
          "One more column: sums of a table's rows of float32, or means, over the edges of a type "
          "that lead to such nodes of type `to`; its number.")
      .def_rw("keeps_slots", &GatherPlan::keeps_slots, "Batches have the slots of their edges.")
      .def_prop_ro("needs_hops", &GatherPlan::needs_hops, "Whether it has columns of that kind.")
      .def(
          "gather",
          [](const GatherPlan& self, const std::vector<Int64Array>& lists, int num_threads,
             const std::vector<std::int64_t>& inner,
             const std::vector<std::pair<Int64Array, Int64Array>>& edges) {
            std::vector<std::span<const std::int64_t>> spans;
            for (const Int64Array& list : lists) spans.push_back(as_span(list));
            SampledHops hops{inner, {}};
            for (const auto& [src, dst] : edges) hops.edges.push_back({as_span(src), as_span(dst)});
            return GatheredTensors::of(
                without_gil([&] { return gather(self, spans, num_threads, {}, hops); }));
          },
          "lists"_a, "num_threads"_a = 0, "inner"_a = std::vector<std::int64_t>(),
          "edges"_a = std::vector<std::pair<Int64Array, Int64Array>>(),
          nb::sig("def gather(self, lists: Sequence[torch.Tensor], num_threads: int = 0, inner: "
                  "Sequence[int] = [], edges: Sequence[tuple[torch.Tensor, torch.Tensor]] = []) "
                  "-> Gathered"),
          "Looks up and gathers for a batch that brings these lists; `inner` and `edges` (sources, "
          "destinations) for a plan that goes by hops.");
  m.def(
      "gather_rows",
      [](const HeldTable& table, Int64Span index, const MutableByteRows& out, int num_threads) {
        if (out.shape(0) != index.size() ||
            out.shape(1) != static_cast<std::size_t>(table.rows.row_bytes)) {
          throw invalid("out: its shape must be [len(index), bytes per row]");
        }
        gather_rows(table.rows, index, reinterpret_cast<std::byte*>(out.data()), num_threads);
      },
      "table"_a, "index"_a, "out"_exact, "num_threads"_a = 0, kWithoutGil,
      "Puts rows `index` of `table` into `out`, uint8 [len(index), bytes per row in a batch].");
  m.def(
      "gather_int64",
      [](const HeldTable& column, Int64Span index, int num_threads) {
        check_id_column(column.rows);
        return fill_tensor(index.size(), [&](std::int64_t* out) {
          gather_ids(column.rows, column.rows, index, out, num_threads);
        });
      },
      "column"_a, "index"_a, "num_threads"_a = 0,
      "Items `index` of a column of int32 or int64 that are numbers of its rows, as int64.");
  m.def("num_threads", &num_threads, "requested"_a = 0,
        "How many threads a call that asks for `requested` (0: torch's number) will use.");
  m.def("set_num_threads", &set_usual_team, "threads"_a, "How many threads 0 stands for.");
  m.attr("threads_are_torchs") = threads_are_torchs();
}

}  // namespace gz::python
