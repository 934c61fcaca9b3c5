// One edge on its way into a CSC: what sort buffers and scratch files hold, packed.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/constants.h"
#include "storage/layout.h"

namespace gz {

using Byte = unsigned char;

// An edge attribute, which travels with its edge.
struct PayloadColumn {
  std::string name;
  const DType* dtype;
  std::vector<std::uint64_t> item_shape;  // behind the dimension of edges
  std::vector<Byte> one;                  // the bytes of the number 1

  std::uint32_t num_items() const noexcept {
    std::uint64_t items = 1;
    for (const std::uint64_t dim : item_shape) items *= dim;
    return static_cast<std::uint32_t>(items);
  }
  std::uint32_t row_bytes() const noexcept { return num_items() * dtype->item_bytes; }
};

// Source, destination and number of an edge, each in 4 bytes where all of them fit and in 8 where
// not, and its attributes. Numbers order the edges as CSC neighbourhoods have them: the edges of
// the input, then their reverses, then loops that were added.
class RecordLayout {
 public:
  // REQUIRES ids below num_ids and numbers below num_numbers.
  RecordLayout(std::uint64_t num_ids, std::uint64_t num_numbers,
               const std::vector<PayloadColumn>& columns)
      : id_bytes_(num_ids <= (1ULL << 32) ? 4 : 8),
        number_bytes_(num_numbers <= (1ULL << 32) ? 4 : 8) {
    size_ = payload_at();
    for (const PayloadColumn& column : columns) {
      column_at_.push_back(size_);
      column_bytes_.push_back(column.row_bytes());
      size_ += column.row_bytes();
    }
  }

  std::uint32_t size() const noexcept { return size_; }
  std::uint32_t number_bytes() const noexcept { return number_bytes_; }
  std::uint32_t payload_at() const noexcept { return 2 * id_bytes_ + number_bytes_; }
  std::uint32_t payload_bytes() const noexcept { return size_ - payload_at(); }
  std::uint32_t column_at(std::size_t column) const noexcept { return column_at_[column]; }

  std::uint32_t column_bytes(std::size_t column) const noexcept { return column_bytes_[column]; }

  std::uint64_t src(const Byte* record) const noexcept { return load(record, id_bytes_); }
  std::uint64_t dst(const Byte* record) const noexcept {
    return load(record + id_bytes_, id_bytes_);
  }
  std::uint64_t number(const Byte* record) const noexcept {
    return load(record + 2 * id_bytes_, number_bytes_);
  }
  void set_ends(Byte* record, std::uint64_t src, std::uint64_t dst) const noexcept {
    store(record, id_bytes_, src);
    store(record + id_bytes_, id_bytes_, dst);
  }
  void set_number(Byte* record, std::uint64_t number) const noexcept {
    store(record + 2 * id_bytes_, number_bytes_, number);
  }

 private:
  static std::uint64_t load(const Byte* at, std::uint32_t bytes) noexcept {
    if (bytes == 4) {
      std::uint32_t value;
      std::memcpy(&value, at, sizeof value);
      return value;
    }
    std::uint64_t value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  static void store(Byte* at, std::uint32_t bytes, std::uint64_t value) noexcept {
    std::memcpy(at, &value, bytes == 4 ? 4 : 8);  // little-endian, as the whole format
  }

  std::uint32_t id_bytes_;
  std::uint32_t number_bytes_;
  std::uint32_t size_ = 0;
  std::vector<std::uint32_t> column_at_;
  std::vector<std::uint32_t> column_bytes_;
};

// Copies a row of an attribute; the usual sizes without a call.
inline void copy_row(Byte* to, const Byte* from, std::uint32_t bytes) noexcept {
  const auto copy = [=](auto size) { std::memcpy(to, from, size); };
  if (!with_constant<1U, 4U, 8U>(bytes, copy)) copy(bytes);
}

}  // namespace gz
