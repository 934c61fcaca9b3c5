// Times of edges as numbers that sort as the times do.
#pragma once

#include <bit>
#include <cstdint>

#include "build/numbers.h"
#include "build/options.h"

namespace gz {

inline std::uint64_t ordered(std::uint64_t time) noexcept { return time; }

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
    std::uint64_t found = 0;
    with_type(*dtype_,
              [&]<class T>(T) { found = ordered(Number<T>::widen(read_as<T>(record + at_))); });
    return found;
  }

  // Whether the value at `at`, of the time column's dtype, is NaN.
  bool is_nan(const Byte* at) const noexcept {
    bool found = false;
    with_type(*dtype_, [&]<class T>(T) {
      const auto value = Number<T>::widen(read_as<T>(at));
      found = value != value;
    });
    return found;
  }

  // Numbers but for unsigned ones of more than a byte.
  static bool can_be(const DType& dtype) noexcept {
    return with_type(dtype, [](auto) {}) && (dtype.item_bytes == 1 || dtype.name[0] != 'u');
  }

 private:
  RecordLayout layout_;
  std::span<const std::int64_t> of_sources_;
  const DType* dtype_ = nullptr;
  std::uint32_t at_ = 0;
};

}  // namespace gz
