// Gathering rows into a batch's tensors.
#include "bindings/gathered.h"

#include <nanobind/stl/shared_ptr.h>

#include <stdexcept>

#include "base/parallel.h"

namespace gz::python {

using namespace nb::literals;

namespace {

RowTable row_table(const ByteRows& table) {
  if (table.shape(1) > 1 && table.stride(1) != 1) {
    throw std::invalid_argument("table: the bytes of a row must be contiguous");
  }
  return {reinterpret_cast<const std::byte*>(table.data()),
          static_cast<std::int64_t>(table.shape(0)), static_cast<std::int64_t>(table.shape(1)),
          table.stride(0)};
}

}  // namespace

nb::tuple gathered_tensors(Gathered gathered) {
  nb::list lists, columns;
  for (auto& ids : gathered.lists) lists.append(to_tensor(std::move(ids)));
  for (auto& [rows, row_bytes] : gathered.columns) {
    const auto width = static_cast<std::size_t>(row_bytes);
    const auto height = width == 0 ? 0 : static_cast<std::size_t>(rows.size()) / width;
    columns.append(to_array<ByteMatrix>(std::move(rows), {height, width}));
  }
  return nb::make_tuple(lists, columns);
}

void init_gather(nb::module_& m) {
  nb::class_<GatherPlan>(m, "GatherPlan",
                         "What to gather for every batch: columns, each by one of its index lists.")
      .def(
          "__init__",
          [](GatherPlan* self, std::size_t num_lists, bool locked) {
            new (self) GatherPlan{num_lists, {}, {}, locked, {}};
          },
          "num_lists"_a, "locked"_a = false)
      .def(
          "add_lookup",
          [](GatherPlan& self, std::size_t by, const ByteRows& ids) {
            self.lookups.push_back({by, id_column(row_table(ids))});
            self.owners.push_back(hold(ids));
            return self.num_lists + self.lookups.size() - 1;
          },
          "by"_a, nb::arg("ids").noconvert(),
          "One more list: items of an int32 or int64 column [items, 4 or 8 bytes]; its number.")
      .def(
          "add_column",
          [](GatherPlan& self, std::size_t by, const ByteRows& table) {
            self.columns.push_back({by, row_table(table)});
            self.owners.push_back(hold(table));
            return self.columns.size() - 1;
          },
          "by"_a, nb::arg("table").noconvert(),
          "One more column: rows of a table [rows, bytes per row]; its number.")
      .def(
          "gather",
          [](const GatherPlan& self, const std::vector<Int64Array>& lists, int num_threads) {
            std::vector<std::span<const std::int64_t>> spans;
            for (const Int64Array& list : lists) spans.push_back(as_span(list));
            Gathered gathered;
            {
              const nb::gil_scoped_release released;
              gathered = gather(self, spans, num_threads);
            }
            return gathered_tensors(std::move(gathered));
          },
          "lists"_a, "num_threads"_a = 0,
          nb::sig("def gather(self, lists: Sequence[torch.Tensor], num_threads: int = 0) -> "
                  "tuple[list[torch.Tensor], list[torch.Tensor]]"),
          "The lists looked up (int64), and the columns' rows (uint8 [rows, bytes per row]).");
  m.def(
      "gather_rows",
      [](const ByteRows& table, const Int64Array& index, const MutableByteRows& out,
         int num_threads) {
        const RowTable rows = row_table(table);
        if (out.shape(0) != index.size() || out.shape(1) != table.shape(1)) {
          throw std::invalid_argument("out: its shape must be [len(index), bytes per row]");
        }
        const auto ids = as_span(index);
        auto* const to = reinterpret_cast<std::byte*>(out.data());
        const nb::gil_scoped_release released;
        gather_rows(rows, ids, to, num_threads);
      },
      nb::arg("table").noconvert(), nb::arg("index").noconvert(), nb::arg("out").noconvert(),
      "num_threads"_a = 0,
      "Copies rows `index` of `table` [rows, bytes per row] to `out` [len(index), bytes per row].");
  m.def(
      "gather_int64",
      [](const ByteRows& column, const Int64Array& index, int num_threads) {
        const IdColumn ids = id_column(row_table(column));
        Buffer<std::int64_t> out(static_cast<std::int64_t>(index.size()));
        {
          const nb::gil_scoped_release released;
          gather_ids(ids, as_span(index), out.data(), num_threads);
        }
        return to_tensor(std::move(out));
      },
      nb::arg("column").noconvert(), nb::arg("index").noconvert(), "num_threads"_a = 0,
      "Items `index` of an int32 or int64 column, given as its bytes [items, 4 or 8], as int64.");
  m.def("num_threads", &num_threads, "requested"_a = 0,
        "How many threads a call that asks for `requested` (0: torch's number) will use.");
}

}  // namespace gz::python
