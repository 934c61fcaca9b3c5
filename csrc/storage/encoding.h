// Encodings: numbers that are stored in place of float32. An encoding is a row of the table
// below and a file encoding_*.cpp with its arithmetic; encoding_loops.h has what these share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace gz {

// Columns of a tile, what is encoded at a time: a cache line of every row.
inline constexpr std::int64_t kTileColumns = 16;

// One number for each column of a tile. Lanes beyond the last column hold anything.
template <class T>
using Lanes = std::array<T, static_cast<std::size_t>(kTileColumns)>;

// Less than 2^31 rows of up to kTileColumns columns, `stride` floats apart.
struct RowTile {
  const float* rows;
  std::int64_t stride;
  std::int64_t num_rows;
  std::int64_t num_columns;
};

// Scales of the encodings that have them: a code stands for float(code) * scale + zero_point.
struct ScaleTile {
  Lanes<float> scale{}, zero_point{};
  Lanes<double> per_step{};  // 1 / scale, or 0 where the column is constant
};

// The loss of encoding: sums over finite values.
struct LossTile {
  Lanes<float> shift{};  // near the values, so that sums of squares keep their digits
  Lanes<double> sum{}, sum_of_squares{};  // of what remains of a value after the shift
  Lanes<double> max_abs_error{}, squared_error{};
  Lanes<std::int64_t> count{}, clipped{};
};

// Decodes `count` items to out[0 … count - 1]. Neither side need be aligned; `scale` and
// `zero_point` hold `count` numbers where the encoding has scales, and are not looked at otherwise.
using DecodeItems = void (*)(const std::byte* items, std::int64_t count, const float* scale,
                             const float* zero_point, std::byte* out);

// Decodes rows of `count` items and adds them to sums[0 … count - 1], one row after the other; the
// rest as above.
using AddRows = void (*)(const std::byte* const* rows, std::int64_t num_rows, std::int64_t count,
                         const float* scale, const float* zero_point, std::byte* sums);

// Writes the codes of row r to out + r * stride * item_bytes. `scale` is looked at only where the
// encoding has scales; values must be finite there.
using EncodeTile = void (*)(const RowTile& tile, const ScaleTile& scale, std::byte* out,
                            LossTile& loss);

struct EncodingKernels {
  DecodeItems decode;  // what a gather does to rows
  AddRows add;         // what a sum over neighbours does
  EncodeTile encode;
};

const EncodingKernels& float32_kernels() noexcept;  // these cannot encode
const EncodingKernels& float16_kernels() noexcept;
const EncodingKernels& bfloat16_kernels() noexcept;
const EncodingKernels& int8_kernels() noexcept;

enum class Encoding { kFloat16, kBFloat16, kInt8 };

struct EncodingFacts {
  Encoding encoding;
  std::string_view name;  // of the encoding, and of the dtype that is stored
  std::int64_t item_bytes;
  std::uint32_t number;  // in a column's header; 0 there: numbers are what they are
  // Item c of a row is float(code) * scale[c] + zero_point[c], each operation rounded; else the
  // float32 that has the value of the code.
  bool has_scales;
  const EncodingKernels& (*kernels)() noexcept;
};
inline constexpr EncodingFacts kEncodings[] = {
    {Encoding::kFloat16, "float16", 2, 1, false, float16_kernels},
    {Encoding::kBFloat16, "bfloat16", 2, 1, false, bfloat16_kernels},
    {Encoding::kInt8, "int8", 1, 2, true, int8_kernels},
};

constexpr const EncodingFacts& facts(Encoding encoding) noexcept {
  return kEncodings[static_cast<int>(encoding)];
}
constexpr std::int64_t item_bytes(Encoding encoding) noexcept { return facts(encoding).item_bytes; }
constexpr bool has_scales(Encoding encoding) noexcept { return facts(encoding).has_scales; }

// Without an encoding: of float32 as it is.
inline const EncodingKernels& kernels(std::optional<Encoding> encoding) noexcept {
  return (encoding ? facts(*encoding).kernels : float32_kernels)();
}

}  // namespace gz
