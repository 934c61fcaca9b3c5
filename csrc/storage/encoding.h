// What float32 numbers may be stored as, in place of themselves: everything about an encoding but
// its arithmetic (gather/decode.h, build/encode.h).
#pragma once

#include <cstdint>
#include <string_view>

namespace gz {

enum class Encoding { kFloat16, kBFloat16, kInt8 };

struct EncodingFacts {
  Encoding encoding;
  std::string_view name;  // of the encoding, and of the dtype that is stored
  std::int64_t item_bytes;
  std::uint32_t number;  // in a column's header; 0 there: numbers are what they are
  // Item c of a row is float(code) * scale[c] + zero_point[c], each operation rounded; else the
  // float32 that has the value of the code.
  bool has_scales;
};
inline constexpr EncodingFacts kEncodings[] = {
    {Encoding::kFloat16, "float16", 2, 1, false},
    {Encoding::kBFloat16, "bfloat16", 2, 1, false},
    {Encoding::kInt8, "int8", 1, 2, true},
};

constexpr const EncodingFacts& facts(Encoding encoding) noexcept {
  return kEncodings[static_cast<int>(encoding)];
}
constexpr std::int64_t item_bytes(Encoding encoding) noexcept { return facts(encoding).item_bytes; }
constexpr bool has_scales(Encoding encoding) noexcept { return facts(encoding).has_scales; }

}  // namespace gz
