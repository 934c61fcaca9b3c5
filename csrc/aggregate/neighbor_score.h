// Scores of edges as in GATv2: for every edge and head the product of a vector with a leaky ReLU of
// the sum of the source's row and the destination's.
#pragma once

#include <cstdint>

#include "aggregate/edges.h"
#include "aggregate/rows.h"

namespace gz {

template <class T>
struct ScoreInputs {
  RowShape shape;
  Rows<const T> sources, destinations;
  const Sum<T>* attention = nullptr;  // [shape]
  Sum<T> slope = 0;                   // below 0
};

// For float, double, Float16 and BFloat16; bit-identical for any number of threads. REQUIRES edges
// that were checked. Edges without a destination get 0.

// [edges, heads].
template <class T>
void neighbor_score(const GroupedEdges& edges, const ScoreInputs<T>& inputs, Sum<T>* out);

// From the gradient of scores those of the sources' rows, the destinations' rows and the vector.
template <class T>
void neighbor_score_backward(const GroupedEdges& edges, const ScoreInputs<T>& inputs,
                             const Sum<T>* grad, T* sources, T* destinations, Sum<T>* attention);

}  // namespace gz
