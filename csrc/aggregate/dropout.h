// Dropout: numbers are left out at random, and what is kept is scaled up.
#pragma once

#include <cstdint>
#include <span>

#include "aggregate/rows.h"

namespace gz {

// out[i] = x[i] * m(i), where m(i) is 0 with probability `p`, else 1 / (1 - p), and depends on
// `key` and i alone: the same for any number of threads. Nothing has to be kept for a gradient,
// which is this function of the gradient of `out`. For float, double, Float16 and BFloat16;
// REQUIRES 0 <= p <= 1, and an `out` of its own.
template <class T>
void dropout(std::span<const T> x, double p, std::uint64_t key, int threads, T* out);

}  // namespace gz
