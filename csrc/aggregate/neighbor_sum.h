// Weighted sums and means of rows over edges, and products of rows along edges: each is what the
// other's gradient needs. No array of a row for each edge is made.
#pragma once

#include <cstdint>

#include "aggregate/edges.h"
#include "aggregate/rows.h"

namespace gz {

// All are there for float, double, Float16 and BFloat16, and bit-identical for any number of
// threads. REQUIRES edges that were checked, and rows for all of their sources and destinations.
// `weight`, with a number for each edge and head, may be null: 1. With `is_mean`, a destination's
// edges count as much less as there are more of them.

// Rows [destinations, shape]: the sum of the source's row over a destination's in-edges.
template <class T>
void neighbor_sum(const GroupedEdges& edges, RowShape shape, Rows<const T> sources,
                  const Sum<T>* weight, bool is_mean, T* out);

// Rows [sources, shape]: the sum of the destination's row over a source's out-edges.
template <class T>
void source_sum(const GroupedEdges& edges, RowShape shape, Rows<const T> destinations,
                const Sum<T>* weight, bool is_mean, T* out);

// Products of the two rows, [edges, heads]; 0 for edges without a destination.
template <class T>
void edge_dot(const GroupedEdges& edges, RowShape shape, Rows<const T> destinations,
              Rows<const T> sources, bool is_mean, Sum<T>* out);

}  // namespace gz
