// Stored items to float32: what a gather does to rows of an encoded column, and a sum to any.
#pragma once

#include <cstddef>
#include <cstdint>

#include "storage/encoding.h"

namespace gz {

// Decodes `count` items to out[0 … count - 1]. Neither side need be aligned; `scale` and
// `zero_point` hold `count` numbers where the encoding has scales, and are not looked at otherwise.
using DecodeItems = void (*)(const std::byte* items, std::int64_t count, const float* scale,
                             const float* zero_point, std::byte* out);

// The fastest function of this machine, and the one that any machine runs. Both give the same
// bits for the same bits.
DecodeItems decoder(Encoding encoding) noexcept;
DecodeItems portable_decoder(Encoding encoding) noexcept;

// The same, but the numbers are added to those at `out`: what a sum over neighbours does for each
// edge. Null: float32 items, as they are.
DecodeItems adder(const Encoding* encoding) noexcept;
DecodeItems portable_adder(const Encoding* encoding) noexcept;

}  // namespace gz
