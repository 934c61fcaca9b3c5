// The largest or smallest number over the in-edges of each destination, every channel by itself.
#pragma once

#include "aggregate/edges.h"
#include "aggregate/rows.h"

namespace gz {

// For float, double, Float16 and BFloat16; bit-identical for any number of threads. REQUIRES edges
// that were checked.

// Rows [destinations, shape]; 0 where there are no in-edges, and what is no number wins.
template <class T>
void neighbor_max(const GroupedEdges& edges, RowShape shape, Rows<const T> sources, bool is_min,
                  T* out);

// The sources' gradient from what neighbor_max() has made and the gradient of that. Sources with
// the same number share it, and a result of 0 counts as one more of them, as in PyG: torch's
// scatter_reduce, which it uses, begins with zeros.
template <class T>
void neighbor_max_backward(const GroupedEdges& edges, RowShape shape, Rows<const T> sources,
                           Rows<const T> made, Rows<const T> grad, T* out);

}  // namespace gz
