// Rows added up as they are decoded: what a sum over neighbours does for each edge.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gather/decode.h"

namespace gz {

// Adds `count` stored items, decoded, to out[0 … count - 1]. `scale` and `zero_point` as for
// DecodeItems.
using AddItems = void (*)(const std::byte* items, std::int64_t count, const float* scale,
                          const float* zero_point, float* out);

// The fastest function of this machine, and the one that any machine runs; for float32 items
// without a code. Both give the same bits for the same bits.
AddItems adder(const RowCode* code) noexcept;
AddItems portable_adder(const RowCode* code) noexcept;

}  // namespace gz
