// Arrays across the language boundary: what comes in is checked here, what goes out has an owner.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>

#include "arrays/buffer.h"
#include "gather/loan.h"
#include "io/mapping.h"

namespace nanobind::detail {

// Numbers of an array that is taken as it is, contiguous and on the CPU; std::byte are uint8's.
template <class T>
struct type_caster<std::span<T>> {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::uint8_t, std::uint8_t>;
  using Number = std::conditional_t<std::is_same_v<std::remove_const_t<T>, std::byte>, Byte, T>;
  using Array = ndarray<pytorch, Number, ndim<1>, c_contig, device::cpu>;
  NB_TYPE_CASTER(std::span<T>, make_caster<Array>::Name)

  bool from_python(handle from, std::uint32_t flags, cleanup_list* cleanup) noexcept {
    flags &= ~static_cast<std::uint32_t>(cast_flags::convert);
    if (!array_.from_python(from, flags, cleanup)) return false;
    value = {reinterpret_cast<T*>(array_.value.data()), array_.value.size()};
    return true;
  }

 private:
  make_caster<Array> array_;
};

}  // namespace nanobind::detail

namespace gz::python {

namespace nb = nanobind;

// A function that Python's other threads go on beside.
inline constexpr nb::call_guard<nb::gil_scoped_release> kWithoutGil{};
using Int64Span = std::span<const std::int64_t>;

// Torch tensors, or anything else that speaks DLPack: contiguous, on the CPU, never converted.
using Int64Array =
    nb::ndarray<nb::pytorch, const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes =
    nb::ndarray<nb::pytorch, const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ByteRows = nb::ndarray<nb::pytorch, const std::uint8_t, nb::ndim<2>, nb::device::cpu>;
using MutableByteRows =
    nb::ndarray<nb::pytorch, std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using FloatArray =
    nb::ndarray<nb::pytorch, const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using FloatMatrix = nb::ndarray<nb::pytorch, float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using FloatRows = nb::ndarray<nb::pytorch, const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

using Int64Tensor = nb::ndarray<nb::pytorch, std::int64_t, nb::ndim<1>>;
using Int64Matrix = nb::ndarray<nb::pytorch, std::int64_t, nb::ndim<2>>;
using ByteTensor = nb::ndarray<nb::pytorch, std::uint8_t, nb::ndim<1>>;
using ByteMatrix = nb::ndarray<nb::pytorch, std::uint8_t, nb::ndim<2>>;

// An argument that is taken as it is, or not at all.
inline auto operator""_exact(const char* name, std::size_t) { return nb::arg(name).noconvert(); }

// Calls call() without the GIL; returns what it does.
template <class Call>
auto without_gil(const Call& call) {
  const nb::gil_scoped_release released;
  return call();
}

inline std::span<const std::int64_t> as_span(const Int64Array& array) {
  return {array.data(), array.size()};
}

// Hands the buffer's memory to an array of the given shape, which gives it back to the pool; and
// its part of `loan`, if it is one's.
template <class Array, class T>
Array to_array(Buffer<T>&& buffer, std::initializer_list<std::size_t> shape, Loan* loan = nullptr) {
  struct Owned {
    Loan loan;  // ends last, when the memory is free
    Buffer<T> buffer;
  };
  if (buffer.capacity() == 0) buffer.reserve(1);
  const auto bytes = static_cast<std::int64_t>(buffer.span().size_bytes());
  auto* const data = reinterpret_cast<typename Array::Scalar*>(buffer.data());
  std::unique_ptr<Owned> owned(new Owned{loan ? loan->split(bytes) : Loan(), std::move(buffer)});
  const nb::capsule owner(owned.get(),
                          [](void* held) noexcept { delete static_cast<Owned*>(held); });
  owned.release();
  return Array(data, shape, owner);
}

inline Int64Tensor to_tensor(Buffer<std::int64_t>&& buffer, Loan* loan = nullptr) {
  const auto size = static_cast<std::size_t>(buffer.size());
  return to_array<Int64Tensor>(std::move(buffer), {size}, loan);
}

// A tensor of `size` numbers, which fill(numbers) writes without the GIL.
template <class Fill>
Int64Tensor fill_tensor(std::size_t size, const Fill& fill) {
  Buffer<std::int64_t> numbers(static_cast<std::int64_t>(size));
  without_gil([&] { fill(numbers.data()); });
  return to_tensor(std::move(numbers));
}

// Keeps a Python object alive; the last reference may go away on a thread without the GIL.
template <class Held>
std::shared_ptr<const void> hold(Held held) {
  return std::shared_ptr<const Held>(new Held(std::move(held)), [](const Held* object) {
    const nb::gil_scoped_acquire acquired;
    delete object;
  });
}

// A capsule that keeps `object` alive as long as a view of it lives.
template <class T>
nb::capsule keep_alive(std::shared_ptr<const T> object) {
  return nb::capsule(new std::shared_ptr<const T>(std::move(object)), [](void* held) noexcept {
    delete static_cast<std::shared_ptr<const T>*>(held);
  });
}

// Bytes [offset, offset + size) of a map as a torch tensor that keeps the map alive.
inline ByteTensor view_bytes(std::shared_ptr<const Mapping> map, std::uint64_t offset,
                             std::uint64_t size) {
  auto* const data = reinterpret_cast<std::uint8_t*>(map->data()) + offset;
  return ByteTensor(data, {static_cast<std::size_t>(size)}, keep_alive(std::move(map)));
}

}  // namespace gz::python
