// Scores of edges as in GATv2: of every edge and head the product of a vector with a leaky ReLU of
// the sum of the source's row, the destination's and, where it has one, the edge's.
#pragma once

#include <cstdint>

#include "aggregate/edges.h"
#include "aggregate/rows.h"

namespace gz {

template <class T>
struct ScoreInputs {
  RowShape shape;
  Rows<const T> sources, destinations;
  Rows<const T> of_edges;             // without any: a row of zeros, again and again (stride 0)
  const Sum<T>* attention = nullptr;  // [shape]
  Sum<T> slope = 0;                   // of what is below 0
};

// For float, double, Float16 and BFloat16; bit-identical for any number of threads. REQUIRES edges
// that were checked. Edges of nobody get 0.

// [edges, heads].
template <class T>
void neighbor_score(const GroupedEdges& edges, const ScoreInputs<T>& inputs, Sum<T>* out);

// From the gradient of scores that of the destinations' rows, of the vector and, unless null, of
// the edges' rows.
template <class T>
void neighbor_score_backward(const GroupedEdges& edges, const ScoreInputs<T>& inputs,
                             const Sum<T>* grad, T* destinations, Sum<T>* attention, T* of_edges);

// And that of the sources' rows.
template <class T>
void source_score_backward(const GroupedEdges& edges, const ScoreInputs<T>& inputs,
                           const Sum<T>* grad, T* sources);

}  // namespace gz
