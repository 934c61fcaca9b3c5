// Gathered rows, as tensors.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/arrays.h"
#include "gather/gather.h"

namespace gz::python {

using Int64Tensors = nb::typed<nb::list, Int64Tensor>;

// `Gathered` in Python.
struct GatheredTensors {
  Int64Tensors lists;
  nb::typed<nb::list, ByteMatrix> columns;

  static GatheredTensors of(Gathered gathered, Loan* loan = nullptr);
};

// A list of one tensor for each of `buffers`, which hands its memory over, and its part of `loan`.
Int64Tensors to_tensors(std::vector<Buffer<std::int64_t>>&& buffers, Loan* loan = nullptr);

}  // namespace gz::python
