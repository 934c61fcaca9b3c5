// Encoding rows in fewer bytes.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <vector>

#include "base/errors.h"
#include "bindings/arrays.h"
#include "build/encode.h"

namespace gz::python {

using namespace nb::literals;

namespace {

void check_columns(const RowEncoder& encoder, const FloatRows& rows) {
  if (static_cast<std::int64_t>(rows.shape(1)) != encoder.num_columns()) {
    throw invalid("rows: found ", rows.shape(1), " columns, expected ", encoder.num_columns());
  }
}

}  // namespace

void init_encode(nb::module_& m) {
  nb::class_<ColumnLoss>(m, "ColumnLoss", "What encoding did to one column of an attribute.")
      .def_ro("max_abs_error", &ColumnLoss::max_abs_error)
      .def_ro("squared_error", &ColumnLoss::squared_error, "Summed over its values.")
      .def_ro("clipped", &ColumnLoss::clipped, "Values beyond the reach of the code.")
      .def_ro("count", &ColumnLoss::count, "Finite values.")
      .def_ro("variance", &ColumnLoss::variance, "Of the values before encoding.");
  nb::class_<RowEncoder>(m, "RowEncoder", "Encodes rows of float32.")
      .def(nb::init<Encoding, std::int64_t>(), "encoding"_a, "num_columns"_a)
      .def(
          "profile",
          [](RowEncoder& self, const FloatRows& rows, int num_threads) {
            check_columns(self, rows);
            return self.profile(rows.data(), static_cast<std::int64_t>(rows.shape(0)), num_threads);
          },
          "rows"_exact, "num_threads"_a = 0, kWithoutGil,
          "Where the encoding has scales: takes rows [n, num_columns] into account; the first of "
          "them with a value that is not finite, or -1.")
      .def("fit", &RowEncoder::fit, "Fixes the scales, once all rows were profiled.")
      .def(
          "encode",
          [](RowEncoder& self, const FloatRows& rows, const MutableByteRows& out, int num_threads) {
            check_columns(self, rows);
            if (out.shape(0) != rows.shape(0) ||
                out.shape(1) !=
                    rows.shape(1) * static_cast<std::size_t>(item_bytes(self.encoding()))) {
              throw invalid("out: its shape must be [len(rows), bytes per row]");
            }
            auto* const to = reinterpret_cast<std::byte*>(out.data());
            self.encode(rows.data(), static_cast<std::int64_t>(rows.shape(0)), to, num_threads);
          },
          "rows"_exact, "out"_exact, "num_threads"_a = 0, kWithoutGil,
          "Encodes rows [n, num_columns] into out [n, bytes per row].")
      .def_prop_ro("scale", &RowEncoder::scale)
      .def_prop_ro("zero_point", &RowEncoder::zero_point)
      .def_prop_ro("losses", &RowEncoder::losses, "Of every column, by what was encoded so far.");
}

}  // namespace gz::python
