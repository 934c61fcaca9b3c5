// Edges in their final order, a part of the CSC at a time, on their way into the files.
#pragma once

#include <cstdint>
#include <vector>

#include "arrays/buffer.h"
#include "build/build_plan.h"
#include "storage/topology.h"

namespace gz {

// Consecutive destinations. Several threads fill different parts of it.
class Slab {
 public:
  explicit Slab(const BuildPlan& plan)
      : layout_(plan.layout),
        index_bytes_(index_bytes_for(plan.options.num_src)),
        number_bytes_(number_bytes(plan)),
        columns_(plan.options.columns.size()) {}

  // Some of its edges: `count` of them, from position `at` of the arrays on.
  struct Part {
    std::uint64_t at;
    std::uint64_t count;
  };
  void reset(std::uint64_t max_edges, std::uint64_t num_dst) {
    const auto make_room = [&](Buffer<Byte>& buffer, std::uint64_t bytes) {
      buffer.reserve(static_cast<std::int64_t>(max_edges * bytes));  // no more than that
    };
    parts.clear();
    degrees.reserve(static_cast<std::int64_t>(num_dst));
    degrees.resize(static_cast<std::int64_t>(num_dst));
    make_room(indices_, index_bytes_);
    make_room(numbers_, number_bytes_);
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      make_room(columns_[c], layout_.column_bytes(c));
    }
  }

  // Puts record_at(0) … record_at(count - 1) behind position `at`.
  template <class RecordAt>
  void put(std::uint64_t at, std::uint64_t count, const RecordAt& record_at) {
    Byte* index = indices_.data() + at * index_bytes_;
    Byte* number = numbers_.data() + at * number_bytes_;
    for (std::uint64_t i = 0; i < count; ++i) {
      const Byte* const record = record_at(i);
      const std::uint64_t src = layout_.src(record);
      std::memcpy(index, &src, index_bytes_ == 4 ? 4 : 8);
      index += index_bytes_;
      if (number_bytes_ == 0) continue;
      const std::uint64_t value = layout_.number(record);
      std::memcpy(number, &value, number_bytes_ == 4 ? 4 : 8);
      number += number_bytes_;
    }
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const std::uint32_t bytes = layout_.column_bytes(c);
      Byte* to = columns_[c].data() + at * bytes;
      for (std::uint64_t i = 0; i < count; ++i, to += bytes) {
        copy_row(to, record_at(i) + layout_.column_at(c), bytes);
      }
    }
  }

  // Bytes of one edge in here, at most.
  static std::uint64_t edge_bytes(const BuildPlan& plan) noexcept {
    return 8 + number_bytes(plan) + plan.layout.payload_bytes();
  }

  const Byte* indices(const Part& part) const noexcept {
    return indices_.data() + part.at * index_bytes_;
  }
  const Byte* numbers(const Part& part) const noexcept {
    return numbers_.data() + part.at * number_bytes_;
  }
  const Byte* column(std::size_t c, const Part& part) const noexcept {
    return columns_[c].data() + part.at * layout_.column_bytes(c);
  }

  std::vector<Part> parts;        // in order
  Buffer<std::uint64_t> degrees;  // by destination, over all parts
  std::uint64_t first_dst = 0;

 private:
  // Bytes of an edge's number in here, which is there for its id.
  static std::uint32_t number_bytes(const BuildPlan& plan) noexcept {
    return plan.options.edge_ids ? plan.layout.number_bytes() : 0;
  }

  const RecordLayout& layout_;
  std::uint32_t index_bytes_;
  std::uint32_t number_bytes_;
  Buffer<Byte> indices_;  // sources
  Buffer<Byte> numbers_;  // as in the records
  std::vector<Buffer<Byte>> columns_;
};

}  // namespace gz
