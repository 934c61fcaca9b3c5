// Times of edges as numbers that sort as the times do.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "build/options.h"

namespace gz {

inline std::uint64_t ordered(std::int64_t time) noexcept {
  return static_cast<std::uint64_t>(time) ^ (1ULL << 63);
}

// REQUIRES no NaN. Both zeros are one time.
inline std::uint64_t ordered(double time) noexcept {
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(time + 0.0);
  return bits >> 63 != 0 ? ~bits : bits | (1ULL << 63);
}

// Times of records: of edges, or of their sources.
class EdgeTimes {
 public:
  EdgeTimes(const RecordLayout& layout, const CscOptions& options)
      : layout_(layout), of_sources_(options.source_times) {
    if (!options.time_column) return;
    at_ = layout.column_at(*options.time_column);
    dtype_ = options.columns[*options.time_column].dtype;
  }

  bool any() const noexcept { return dtype_ != nullptr || !of_sources_.empty(); }

  std::uint64_t operator()(const Byte* record) const noexcept {
    if (dtype_ == nullptr) return ordered(of_sources_[layout_.src(record)]);
    return read(record + at_);
  }

  // Whether the value at `at`, of the time column's dtype, is NaN.
  bool is_nan(const Byte* at) const noexcept { return is_floating() && std::isnan(floating(at)); }

  static bool can_be(const DType& dtype) noexcept {
    const std::string_view name = dtype.name;
    return name == "uint8" || name == "int8" || name == "int16" || name == "int32" ||
           name == "int64" || name == "float16" || name == "bfloat16" || name == "float32" ||
           name == "float64";
  }

 private:
  template <class T>
  static T as(const Byte* at) noexcept {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  bool is_floating() const noexcept { return dtype_->name.find("float") != std::string_view::npos; }
  double floating(const Byte* at) const noexcept {
    if (dtype_->item_bytes == 8) return as<double>(at);
    if (dtype_->item_bytes == 4) return as<float>(at);
    const auto bits = as<std::uint16_t>(at);
    return dtype_->name == "float16" ? from_float16(bits) : from_bfloat16(bits);
  }
  std::uint64_t read(const Byte* at) const noexcept {
    if (is_floating()) return ordered(floating(at));
    switch (dtype_->item_bytes) {
      case 1:
        return ordered(std::int64_t{dtype_->name == "uint8" ? *at : as<std::int8_t>(at)});
      case 2:
        return ordered(std::int64_t{as<std::int16_t>(at)});
      case 4:
        return ordered(std::int64_t{as<std::int32_t>(at)});
      default:
        return ordered(as<std::int64_t>(at));
    }
  }

  RecordLayout layout_;
  std::span<const std::int64_t> of_sources_;
  const DType* dtype_ = nullptr;
  std::uint32_t at_ = 0;
};

}  // namespace gz
