// What was gathered, as tensors.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/arrays.h"
#include "gather/gather.h"

namespace gz::python {

// (the lists looked up, int64; the columns' rows, uint8 [rows, bytes per row]).
nb::tuple gathered_tensors(Gathered gathered);

}  // namespace gz::python
