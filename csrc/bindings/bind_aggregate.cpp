// Sums, products and softmax over the edges of a batch.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <optional>
#include <type_traits>

#include "aggregate/dropout.h"
#include "aggregate/neighbor_max.h"
#include "aggregate/neighbor_score.h"
#include "aggregate/neighbor_softmax.h"
#include "aggregate/neighbor_sum.h"
#include "base/errors.h"
#include "bindings/arrays.h"

namespace gz::python {

using namespace nb::literals;

namespace {

// Rows [rows, heads, channels] of any floating type, each row without a gap; int16 are the bits of
// bfloat16, which NumPy does not know.
using RowArray = nb::ndarray<nb::pytorch, nb::ndim<3>, nb::device::cpu>;
// [edges, heads], of what numbers are summed in.
using EdgeArray = nb::ndarray<nb::pytorch, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <class T>
nb::dlpack::dtype dtype_of() {
  if constexpr (std::is_same_v<T, Float16>) {
    return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return nb::dtype<std::int16_t>();
  } else {
    return nb::dtype<T>();
  }
}

void expect(bool holds, const char* name, const char* expected) {
  if (!holds) throw invalid(name, ": expected ", expected);
}

// Calls body with a pointer to the type of the numbers of rows: which one is its type.
template <class Body>
void with_type(const RowArray& rows, const Body& body) {
  const nb::dlpack::dtype found = rows.dtype();
  const auto is = [&]<class T>(const T*) {
    if (found != dtype_of<T>()) return false;
    body(static_cast<T*>(nullptr));
    return true;
  };
  const bool is_known = is(static_cast<float*>(nullptr)) || is(static_cast<double*>(nullptr)) ||
                        is(static_cast<Float16*>(nullptr)) || is(static_cast<BFloat16*>(nullptr));
  expect(is_known, "rows", "float32, float64, float16 or the bits of bfloat16");
}

RowShape shape_of(const RowArray& rows) {
  return {static_cast<std::int64_t>(rows.shape(1)), static_cast<std::int64_t>(rows.shape(2))};
}

// Once it is sure that there are such edges.
GroupedEdges edges_of(Int64Span src, Int64Span bounds, std::size_t num_src, int threads) {
  const GroupedEdges edges{src, bounds, static_cast<std::int64_t>(num_src), threads};
  check_edges(edges);
  return edges;
}

// An argument's rows, once it is sure that they have this type and shape.
template <class T>
Rows<T> rows_of(const RowArray& rows, const char* name, RowShape shape, std::int64_t count) {
  const auto size = [&](std::size_t i) { return static_cast<std::int64_t>(rows.shape(i)); };
  expect(rows.dtype() == dtype_of<std::remove_const_t<T>>(), name, "the type of the other rows");
  expect(size(0) == count && size(1) == shape.heads && size(2) == shape.channels, name,
         "a row for each source or destination, of one shape");
  const bool is_dense = (shape.channels <= 1 || rows.stride(2) == 1) &&
                        (shape.heads <= 1 || rows.stride(1) == shape.channels);
  expect(is_dense || rows.size() == 0, name, "the numbers of a row without gaps");
  return {static_cast<T*>(rows.data()), rows.stride(0)};
}

// And no gap between rows either.
template <class T>
T* dense_rows(const RowArray& rows, const char* name, RowShape shape, std::int64_t count) {
  const Rows<T> found = rows_of<T>(rows, name, shape, count);
  expect(found.stride == shape.size() || count <= 1 || rows.size() == 0, name, "rows without gaps");
  return found.data;
}

// Numbers of the type that rows are summed in, once it is sure that the array has this shape.
template <class S>
S* numbers_of(const std::optional<EdgeArray>& array, const char* name, std::int64_t rows,
              std::int64_t columns) {
  if (!array) return nullptr;
  const std::int64_t found[] = {static_cast<std::int64_t>(array->shape(0)),
                                static_cast<std::int64_t>(array->shape(1))};
  if (array->dtype() != nb::dtype<S>() || found[0] != rows || found[1] != columns) {
    throw invalid(name, ": found ", found[0], " x ", found[1], " numbers, expected ", rows, " x ",
                  columns, " of the type that rows are summed in");
  }
  return static_cast<S*>(array->data());
}

// At destinations their sources' rows are added up, at sources those of their destinations.
template <bool kAtSources>
void sum(const RowArray& x, Int64Span src, Int64Span bounds, const std::optional<EdgeArray>& weight,
         bool is_mean, const RowArray& out, int threads) {
  const GroupedEdges edges = edges_of(src, bounds, (kAtSources ? out : x).shape(0), threads);
  const RowShape shape = shape_of(x);
  const std::int64_t ends[] = {edges.num_src, edges.num_dst()};
  with_type(x, [&]<class T>(T*) {
    const auto from = rows_of<const T>(x, "x", shape, ends[kAtSources]);
    T* const to = dense_rows<T>(out, "out", shape, ends[!kAtSources]);
    const Sum<T>* const weights =
        numbers_of<Sum<T>>(weight, "weight", std::ssize(edges.src), shape.heads);
    const auto adds = kAtSources ? source_sum<T> : neighbor_sum<T>;
    adds(edges, shape, from, weights, is_mean, to);
  });
}

void dot_of_edges(const RowArray& q, const RowArray& k, Int64Span src, Int64Span bounds,
                  bool is_mean, const EdgeArray& out, int threads) {
  const GroupedEdges edges = edges_of(src, bounds, k.shape(0), threads);
  const RowShape shape = shape_of(k);
  with_type(k, [&]<class T>(T*) {
    const auto of_dst = rows_of<const T>(q, "q", shape, edges.num_dst());
    const auto of_src = rows_of<const T>(k, "k", shape, edges.num_src);
    auto* const to = numbers_of<Sum<T>>(out, "out", std::ssize(edges.src), shape.heads);
    edge_dot<T>(edges, shape, of_dst, of_src, is_mean, to);
  });
}

// With `grad`, the gradient of the scores that `given` was made of; without, what is made of the
// scores `given`.
void softmax(const EdgeArray& given, Int64Span bounds, const std::optional<EdgeArray>& grad,
             const EdgeArray& out, int threads) {
  const auto heads = static_cast<std::int64_t>(given.shape(1));
  // No source is looked at: any array with a number for each edge stands for them.
  const GroupedEdges edges{
      {static_cast<const std::int64_t*>(nullptr), given.shape(0)}, bounds, 0, threads};
  const auto run = [&]<class S>(S*) {
    const S* const from = numbers_of<S>(given, "scores", std::ssize(edges.src), heads);
    const S* const grads = numbers_of<S>(grad, "grad", std::ssize(edges.src), heads);
    S* const to = numbers_of<S>(out, "out", std::ssize(edges.src), heads);
    check_bounds(edges);
    if (grads == nullptr) return neighbor_softmax(edges, heads, from, to);
    neighbor_softmax_backward(edges, heads, from, grads, to);
  };
  if (given.dtype() == nb::dtype<double>()) return run(static_cast<double*>(nullptr));
  run(static_cast<float*>(nullptr));
}

void max_of_neighbors(const RowArray& x, Int64Span src, Int64Span bounds, bool is_min,
                      const RowArray& out, int threads) {
  const GroupedEdges edges = edges_of(src, bounds, x.shape(0), threads);
  const RowShape shape = shape_of(x);
  with_type(x, [&]<class T>(T*) {
    const auto from = rows_of<const T>(x, "x", shape, edges.num_src);
    T* const to = dense_rows<T>(out, "out", shape, edges.num_dst());
    neighbor_max<T>(edges, shape, from, is_min, to);
  });
}

void max_backward(const RowArray& x, Int64Span src, Int64Span bounds, const RowArray& made,
                  const RowArray& grad, const RowArray& out, int threads) {
  const GroupedEdges edges = edges_of(src, bounds, x.shape(0), threads);
  const RowShape shape = shape_of(x);
  with_type(x, [&]<class T>(T*) {
    const auto from = rows_of<const T>(x, "x", shape, edges.num_src);
    const auto winners = rows_of<const T>(made, "made", shape, edges.num_dst());
    const auto grads = rows_of<const T>(grad, "grad", shape, edges.num_dst());
    T* const to = dense_rows<T>(out, "out", shape, edges.num_src);
    neighbor_max_backward<T>(edges, shape, from, winners, grads, to);
  });
}

void drop(const RowArray& x, double p, std::uint64_t key, const RowArray& out, int threads) {
  const RowShape shape = shape_of(x);
  const auto count = static_cast<std::int64_t>(x.shape(0));
  expect(p >= 0 && p <= 1, "p", "a probability");
  with_type(x, [&]<class T>(T*) {
    const T* const from = dense_rows<const T>(x, "x", shape, count);
    T* const to = dense_rows<T>(out, "out", shape, count);
    dropout<T>({from, x.size()}, p, key, threads, to);
  });
}

// Calls body(edges, inputs, type) for the type of the rows that scores are made of.
template <class Body>
void with_scored(const RowArray& x_src, const RowArray& x_dst, const EdgeArray& attention,
                 const GroupedEdges& edges, double slope, const Body& body) {
  const RowShape shape = shape_of(x_src);
  with_type(x_src, [&]<class T>(T* type) {
    body(ScoreInputs<T>{shape, rows_of<const T>(x_src, "x_src", shape, edges.num_src),
                        rows_of<const T>(x_dst, "x_dst", shape, edges.num_dst()),
                        numbers_of<Sum<T>>(attention, "att", shape.heads, shape.channels),
                        static_cast<Sum<T>>(slope)},
         type);
  });
}

void score(const RowArray& x_src, const RowArray& x_dst, const EdgeArray& attention, Int64Span src,
           Int64Span bounds, double slope, const EdgeArray& out, int threads) {
  const GroupedEdges edges = edges_of(src, bounds, x_src.shape(0), threads);
  with_scored(x_src, x_dst, attention, edges, slope, [&]<class T>(ScoreInputs<T> inputs, T*) {
    auto* const to = numbers_of<Sum<T>>(out, "out", std::ssize(edges.src), inputs.shape.heads);
    neighbor_score(edges, inputs, to);
  });
}

void score_backward(const RowArray& x_src, const RowArray& x_dst, const EdgeArray& attention,
                    Int64Span src, Int64Span bounds, double slope, const EdgeArray& grad,
                    const RowArray& grad_src, const RowArray& grad_dst,
                    const EdgeArray& grad_attention, int threads) {
  const GroupedEdges edges = edges_of(src, bounds, x_src.shape(0), threads);
  with_scored(x_src, x_dst, attention, edges, slope, [&]<class T>(ScoreInputs<T> inputs, T*) {
    const auto* const from =
        numbers_of<Sum<T>>(grad, "grad", std::ssize(edges.src), inputs.shape.heads);
    T* const to_src = dense_rows<T>(grad_src, "grad_src", inputs.shape, edges.num_src);
    T* const to_dst = dense_rows<T>(grad_dst, "grad_dst", inputs.shape, edges.num_dst());
    neighbor_score_backward(edges, inputs, from, to_src, to_dst,
                            numbers_of<Sum<T>>(grad_attention, "grad_attention", inputs.shape.heads,
                                               inputs.shape.channels));
  });
}

}  // namespace

void init_aggregate(nb::module_& m) {
  m.def(
      "empty_bytes",
      [](std::int64_t size) {
        Buffer<std::uint8_t> made(size);
        return to_array<ByteTensor>(std::move(made), {static_cast<std::size_t>(size)});
      },
      "size"_a,
      "Memory of huge pages with no defined values, uint8 [size]; that of dead arrays, while there "
      "is a Recycling.");
  m.def("dropout", &drop, "x"_exact, "p"_a, "key"_a, "out"_exact, "threads"_a = 0, kWithoutGil,
        "Numbers [rows, heads, channels] into `out`: 0 with probability p, else divided by 1 - p. "
        "Which ones depends on `key` and their place alone; bfloat16 comes as int16.");
  m.def("neighbor_sum", &sum<false>, "x"_exact, "src"_a, "bounds"_a, "weight"_exact.none(),
        "is_mean"_a, "out"_exact, "threads"_a = 0, kWithoutGil,
        "For every destination the sum, or mean, of its sources' rows [rows, heads, channels], "
        "into `out`. In-edges of destination d are bounds[d] … bounds[d + 1] - 1; bfloat16 comes "
        "as int16.");
  m.def("source_sum", &sum<true>, "rows"_exact, "src"_a, "bounds"_a, "weight"_exact.none(),
        "is_mean"_a, "out"_exact, "threads"_a = 0, kWithoutGil,
        "For every source the sum of its destinations' rows: the gradient of neighbor_sum's x.");
  m.def("edge_dot", &dot_of_edges, "q"_exact, "k"_exact, "src"_a, "bounds"_a, "is_mean"_a,
        "out"_exact, "threads"_a = 0, kWithoutGil,
        "For every edge and head the product of its destination's row and its source's.");
  m.def("neighbor_softmax", &softmax, "given"_exact, "bounds"_a, "grad"_exact.none(), "out"_exact,
        "threads"_a = 0, kWithoutGil,
        "Softmax of scores [edges, heads] over in-edges; or, where a gradient of what it made is "
        "given with that, the scores' gradient.");
  m.def("neighbor_score", &score, "x_src"_exact, "x_dst"_exact, "attention"_exact, "src"_a,
        "bounds"_a, "slope"_a, "out"_exact, "threads"_a = 0, kWithoutGil,
        "For every edge and head the product of `attention` with a leaky ReLU of the sum of its "
        "source's row and its destination's.");
  m.def("neighbor_score_backward", &score_backward, "x_src"_exact, "x_dst"_exact, "attention"_exact,
        "src"_a, "bounds"_a, "slope"_a, "grad"_exact, "grad_src"_exact, "grad_dst"_exact,
        "grad_attention"_exact, "threads"_a = 0, kWithoutGil,
        "Gradients of scores' rows and vector.");
  m.def("neighbor_max", &max_of_neighbors, "x"_exact, "src"_a, "bounds"_a, "is_min"_a, "out"_exact,
        "threads"_a = 0, kWithoutGil,
        "For every destination the largest or smallest numbers of its sources' rows; 0 without.");
  m.def("neighbor_max_backward", &max_backward, "x"_exact, "src"_a, "bounds"_a, "made"_exact,
        "grad"_exact, "out"_exact, "threads"_a = 0, kWithoutGil,
        "The gradient of x: sources with the same number share it, and a result of 0 counts as "
        "one more.");
}

}  // namespace gz::python
