// Arrays across the language boundary: what comes in is checked here, what goes out has an owner.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

#include "base/buffer.h"

namespace gz::python {

namespace nb = nanobind;

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
using FloatRows = nb::ndarray<nb::pytorch, const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using MutableFloatRows =
    nb::ndarray<nb::pytorch, float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

using Int64Tensor = nb::ndarray<nb::pytorch, std::int64_t, nb::ndim<1>>;
using ByteTensor = nb::ndarray<nb::pytorch, std::uint8_t, nb::ndim<1>>;

inline std::span<const std::int64_t> as_span(const Int64Array& array) {
  return {array.data(), array.size()};
}

// Hands the buffer's memory to a torch tensor, which frees it.
inline Int64Tensor to_tensor(Buffer<std::int64_t>&& buffer) {
  const auto size = static_cast<std::size_t>(buffer.size());
  if (buffer.capacity() == 0) buffer.reserve(1);
  std::int64_t* const data = buffer.release();
  const nb::capsule owner(data, [](void* memory) noexcept { std::free(memory); });
  return Int64Tensor(data, {size}, owner);
}

// A capsule that keeps `object` alive as long as a view of it lives.
template <class T>
nb::capsule keep_alive(std::shared_ptr<const T> object) {
  return nb::capsule(new std::shared_ptr<const T>(std::move(object)), [](void* held) noexcept {
    delete static_cast<std::shared_ptr<const T>*>(held);
  });
}

// Bytes [offset, offset + size) of a map as a torch tensor that keeps the map alive.
template <class Map>
ByteTensor view_bytes(std::shared_ptr<const Map> map, std::uint64_t offset, std::uint64_t size) {
  auto* const data = reinterpret_cast<std::uint8_t*>(map->data()) + offset;
  return ByteTensor(data, {static_cast<std::size_t>(size)}, keep_alive(std::move(map)));
}

}  // namespace gz::python
