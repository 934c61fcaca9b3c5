// Building CSC in memory.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>

#include <optional>

#include "base/xxh64.h"
#include "bindings/arrays.h"
#include "build/csc.h"

namespace gz::python {

using namespace nb::literals;

void init_build(nb::module_& m) {
  m.def(
      "sort_by_destination",
      [](const Int64Array& src, const Int64Array& dst, std::int64_t num_src, std::int64_t num_dst) {
        std::optional<Buffer<std::int64_t>> indptr, order;
        {
          const nb::gil_scoped_release released;
          indptr = count_destinations(as_span(src), as_span(dst), num_src, num_dst);
          order = order_by_destination(as_span(dst), indptr->span());
        }
        return std::pair(to_tensor(std::move(*indptr)), to_tensor(std::move(*order)));
      },
      nb::arg("src").noconvert(), nb::arg("dst").noconvert(), "num_src"_a, "num_dst"_a,
      "indptr [num_dst + 1] and, for every CSC slot, which edge it holds [num_edges]; stable.");
  m.def(
      "xxh64", [](const Bytes& data) { return xxh64(data.data(), data.size()); },
      nb::arg("data").noconvert(), "The XXH64 digest the engine computes, for tests.");
}

}  // namespace gz::python
