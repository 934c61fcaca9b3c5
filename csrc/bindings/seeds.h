// Seeds as Python hands them over.
#pragma once

#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "bindings/arrays.h"

namespace gz::python {

using Int64s = std::optional<Int64Array>;
// (node type, nodes, their times or None) each.
using SeedArrays = std::vector<std::tuple<int, Int64Array, Int64s>>;

inline std::span<const std::int64_t> as_span(const Int64s& array) {
  return array ? as_span(*array) : std::span<const std::int64_t>{};
}

}  // namespace gz::python
