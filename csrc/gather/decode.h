// Stored items to float32: what a gather does to rows of an encoded column, and a sum to any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gz {

// How stored items become float32 numbers.
enum class RowCode {
  kFloat16,
  kBFloat16,
  kInt8,  // item c of a row: float(code) * scale[c] + zero_point[c], each operation rounded
};

// The codes by the name of the dtype that is stored; std::invalid_argument for any other.
RowCode row_code(std::string_view dtype);

// Bytes of one stored item.
std::int64_t code_bytes(RowCode code) noexcept;

// Decodes `count` items to out[0 … count - 1]. Neither side need be aligned; `scale` and
// `zero_point` hold `count` numbers for kInt8 and are not looked at otherwise.
using DecodeItems = void (*)(const std::byte* items, std::int64_t count, const float* scale,
                             const float* zero_point, std::byte* out);

// The fastest function of this machine, and the one that any machine runs. Both give the same
// bits for the same bits.
DecodeItems decoder(RowCode code) noexcept;
DecodeItems portable_decoder(RowCode code) noexcept;

// The same, but the numbers are added to those at `out`: what a sum over neighbours does for each
// edge. Null: float32 items, as they are.
DecodeItems adder(const RowCode* code) noexcept;
DecodeItems portable_adder(const RowCode* code) noexcept;

}  // namespace gz
