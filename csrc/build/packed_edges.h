// Edges on their way into a CSC without ids of edges, as scratch files hold them.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>

#include "build/options.h"

namespace gz {

// Source, destination and direction of an edge, each in as many bits as it needs, in whole bytes.
// There is no number: such edges stay in the order of the input, and are numbered by it when they
// are sorted. Only the low bits of a destination are kept; the others are those of the bucket's
// first.
class PackedEdges {
 public:
  // Bytes that may be read behind a record, and written behind it before the next one is.
  static constexpr std::int64_t kSlack = 8;

  // For buckets of at most 2^dst_bits destinations. Nothing where numbers or attributes are wanted,
  // or bits do not fit into 8 bytes.
  static std::optional<PackedEdges> of(const CscOptions& options, std::uint32_t dst_bits) noexcept {
    const auto src_bits = static_cast<std::uint32_t>(std::bit_width(options.num_src));
    const std::uint32_t bits = src_bits + dst_bits + 1;
    if (options.edge_ids || !options.columns.empty() || bits > 64) return std::nullopt;
    return PackedEdges((bits + 7) / 8, dst_bits);
  }

  std::uint32_t size() const noexcept { return size_; }

  // REQUIRES kSlack bytes behind the record.
  void put(Byte* to, std::uint64_t src, std::uint64_t dst, bool is_reverse) const noexcept {
    const std::uint64_t value = (src << dst_bits_ << 1) | ((dst & dst_mask_) << 1) | is_reverse;
    std::memcpy(to, &value, sizeof value);
  }
  std::uint64_t src(const Byte* edge) const noexcept { return load(edge) >> 1 >> dst_bits_; }
  // `first` is the lowest destination that it can be.
  std::uint64_t dst(const Byte* edge, std::uint64_t first) const noexcept {
    return first + (((load(edge) >> 1) - first) & dst_mask_);
  }
  bool is_reverse(const Byte* edge) const noexcept { return (load(edge) & 1) != 0; }

 private:
  PackedEdges(std::uint32_t size, std::uint32_t dst_bits) noexcept
      : size_(size),
        dst_bits_(dst_bits),
        dst_mask_((1ULL << dst_bits) - 1),
        mask_(~0ULL >> (64 - 8 * size)) {}

  std::uint64_t load(const Byte* edge) const noexcept {
    std::uint64_t value;
    std::memcpy(&value, edge, sizeof value);
    return value & mask_;
  }

  std::uint32_t size_;
  std::uint32_t dst_bits_;
  std::uint64_t dst_mask_;
  std::uint64_t mask_;
};

// The edges of a bucket as records, some at a time and in order.
class Unpacker {
 public:
  Unpacker(const PackedEdges& packed, const RecordLayout& layout, const Numbering& numbering,
           std::uint64_t first_dst) noexcept
      : packed_(packed), layout_(layout), first_dst_(first_dst), next_{0, numbering.reverse_base} {}

  void operator()(const Byte* edges, std::uint64_t count, Byte* records) noexcept {
    for (; count > 0; --count, edges += packed_.size(), records += layout_.size()) {
      layout_.set_ends(records, packed_.src(edges), packed_.dst(edges, first_dst_));
      layout_.set_number(records, next_[packed_.is_reverse(edges)]++);
    }
  }

 private:
  const PackedEdges& packed_;
  const RecordLayout& layout_;
  std::uint64_t first_dst_;
  std::uint64_t next_[2];  // numbers: of an edge of the input, and of a reverse one
};

}  // namespace gz
