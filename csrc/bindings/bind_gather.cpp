// Gathering rows into a batch's tensors.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <stdexcept>
#include <string>

#include "base/parallel.h"
#include "bindings/arrays.h"
#include "gather/gather.h"

namespace gz::python {

using namespace nb::literals;

void init_gather(nb::module_& m) {
  m.def(
      "gather_rows",
      [](const ByteRows& table, const Int64Array& index, const MutableByteRows& out,
         int num_threads) {
        if (table.shape(1) > 1 && table.stride(1) != 1) {
          throw std::invalid_argument("table: the bytes of a row must be contiguous");
        }
        if (out.shape(0) != index.size() || out.shape(1) != table.shape(1)) {
          throw std::invalid_argument("out: its shape must be [len(index), bytes per row]");
        }
        const RowTable rows{reinterpret_cast<const std::byte*>(table.data()),
                            static_cast<std::int64_t>(table.shape(0)),
                            static_cast<std::int64_t>(table.shape(1)), table.stride(0)};
        const auto ids = as_span(index);
        auto* const to = reinterpret_cast<std::byte*>(out.data());
        const nb::gil_scoped_release released;
        gather_rows(rows, ids, to, num_threads);
      },
      nb::arg("table").noconvert(), nb::arg("index").noconvert(), nb::arg("out").noconvert(),
      "num_threads"_a = 0,
      "Copies rows `index` of `table` [rows, bytes per row] to `out` [len(index), bytes per row].");
  m.def(
      "gather_decoded",
      [](const ByteRows& table, const std::string& stored, const std::optional<FloatArray>& scale,
         const std::optional<FloatArray>& zero_point, const Int64Array& index,
         const MutableFloatRows& out, int num_threads) {
        const RowCode code = row_code(stored);
        const std::size_t items = out.shape(1);
        if (table.shape(1) > 1 && table.stride(1) != 1) {
          throw std::invalid_argument("table: the bytes of a row must be contiguous");
        }
        if (out.shape(0) != index.size() ||
            table.shape(1) != items * static_cast<std::size_t>(code_bytes(code))) {
          throw std::invalid_argument("out: its shape must be [len(index), items per row]");
        }
        const bool scaled = code == RowCode::kInt8;
        if ((scale ? scale->size() : 0) != (scaled ? items : 0) ||
            (zero_point ? zero_point->size() : 0) != (scaled ? items : 0)) {
          throw std::invalid_argument(
              "scale, zero_point: expected a number for each item of a row of int8");
        }
        const RowTable rows{.data = reinterpret_cast<const std::byte*>(table.data()),
                            .num_rows = static_cast<std::int64_t>(table.shape(0)),
                            .row_bytes = static_cast<std::int64_t>(items * sizeof(float)),
                            .row_stride = table.stride(0),
                            .decode = decoder(code),
                            .scale = scaled ? scale->data() : nullptr,
                            .zero_point = scaled ? zero_point->data() : nullptr};
        const auto ids = as_span(index);
        auto* const to = reinterpret_cast<std::byte*>(out.data());
        const nb::gil_scoped_release released;
        gather_rows(rows, ids, to, num_threads);
      },
      nb::arg("table").noconvert(), "stored"_a, nb::arg("scale").none(),
      nb::arg("zero_point").none(), nb::arg("index").noconvert(), nb::arg("out").noconvert(),
      "num_threads"_a = 0,
      "Decodes rows `index` of `table` [rows, bytes per row], whose items are float16, bfloat16 or "
      "int8, to `out` [len(index), items per row].");
  m.def(
      "gather_int64",
      [](const ByteRows& column, const Int64Array& index, int num_threads) {
        Buffer<std::int64_t> out(static_cast<std::int64_t>(index.size()));
        const auto item_bytes = static_cast<int>(column.shape(1));
        if (column.shape(1) > 1 && column.stride(1) != 1) {
          throw std::invalid_argument("column: expected contiguous items");
        }
        if (column.shape(0) > 1 && column.stride(0) != item_bytes) {
          throw std::invalid_argument("column: expected contiguous items");
        }
        {
          const auto* const data = reinterpret_cast<const std::byte*>(column.data());
          const auto rows = static_cast<std::int64_t>(column.shape(0));
          const auto ids = as_span(index);
          const nb::gil_scoped_release released;
          gather_int64(data, rows, item_bytes, ids, out.data(), num_threads);
        }
        return to_tensor(std::move(out));
      },
      nb::arg("column").noconvert(), nb::arg("index").noconvert(), "num_threads"_a = 0,
      "Items `index` of an int32 or int64 column, given as its bytes [items, 4 or 8], as int64.");
  m.def("num_threads", &num_threads, "requested"_a = 0,
        "How many threads a call that asks for `requested` (0: torch's number) will use.");
}

}  // namespace gz::python
