// Softmax over the in-edges of each destination, every head by itself.
#pragma once

#include <cstdint>

#include "aggregate/edges.h"

namespace gz {

// For float and double; REQUIRES edges whose bounds were checked, sources are not looked at. Arrays
// are [edges, heads]; edges without a destination get 0. Bit-identical for any number of threads.

// exp(score - the largest one) / (sum of these + 1e-16), as torch_geometric.utils.softmax.
template <class S>
void neighbor_softmax(const GroupedEdges& edges, std::int64_t heads, const S* scores, S* out);

// The scores' gradient, from what neighbor_softmax() has made and the gradient of that.
template <class S>
void neighbor_softmax_backward(const GroupedEdges& edges, std::int64_t heads, const S* made,
                               const S* grad, S* out);

}  // namespace gz
