// Numbers of attributes, by the type that they have.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/half.h"
#include "build/records.h"

namespace gz {

// How numbers of type T are computed with: as a Wide one, which T may hold or not.
template <class T>
struct Number {
  using Wide =
      std::conditional_t<std::is_floating_point_v<T>, double,
                         std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>;
  static Wide widen(T value) noexcept { return static_cast<Wide>(value); }
  static bool fits(Wide value) noexcept {
    if constexpr (std::is_integral_v<T>) {
      return value >= std::numeric_limits<T>::min() && value <= std::numeric_limits<T>::max();
    } else {
      return !std::isfinite(value) || std::isfinite(static_cast<T>(value));
    }
  }
  static T narrow(Wide value) noexcept { return static_cast<T>(value); }
};

template <class T, auto from, auto to, std::uint32_t kLimit>
struct Half {
  using Wide = double;
  static Wide widen(T value) noexcept { return from(value.bits); }
  static bool fits(Wide value) noexcept {
    return !std::isfinite(value) || std::abs(value) < std::bit_cast<float>(kLimit);
  }
  static T narrow(Wide value) noexcept { return {to(static_cast<float>(value))}; }
};

template <>
struct Number<Float16> : Half<Float16, from_float16, to_float16, kFloat16Limit> {};
template <>
struct Number<BFloat16> : Half<BFloat16, from_bfloat16, to_bfloat16, kBFloat16Limit> {};

// Calls body(T{}) with the C++ type of a dtype that can be added and compared.
template <class Body>
bool with_type(const DType& dtype, Body&& body) {
  const std::string_view name = dtype.name;
  if (name == "float32") return body(float{}), true;
  if (name == "float64") return body(double{}), true;
  if (name == "float16") return body(Float16{}), true;
  if (name == "bfloat16") return body(BFloat16{}), true;
  if (name == "int64") return body(std::int64_t{}), true;
  if (name == "int32") return body(std::int32_t{}), true;
  if (name == "int16") return body(std::int16_t{}), true;
  if (name == "int8") return body(std::int8_t{}), true;
  if (name == "uint8") return body(std::uint8_t{}), true;
  if (name == "uint16") return body(std::uint16_t{}), true;
  if (name == "uint32") return body(std::uint32_t{}), true;
  if (name == "uint64") return body(std::uint64_t{}), true;
  return false;
}

// The number of type T in these bytes.
template <class T>
T read_as(const Byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace gz
