// Which integer ids occur, a bit for each, and what number each is among them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "arrays/buffer.h"

namespace gz {

// Ids low … low + span - 1. First add(), from one thread; then rank(); then the rest, from any.
class IdBits {
 public:
  // REQUIRES: low + span - 1 is an int64.
  IdBits(std::int64_t low, std::uint64_t span);

  // Bytes that an object over `span` ids takes.
  static std::uint64_t num_bytes(std::uint64_t span) noexcept;

  // Ids outside of the range are none of these.
  void add(std::span<const std::int64_t> ids);

  // Numbers the ids, ascending; returns how many there are.
  std::int64_t rank();

  // The number of every id, -1 where it does not occur.
  void find(std::span<const std::int64_t> ids, std::int64_t* numbers) const;

  // Ids number `begin` … begin + ids.size() - 1.
  void read(std::int64_t begin, std::span<std::int64_t> ids) const;

 private:
  std::int64_t low_;
  std::uint64_t span_;
  std::uint64_t num_words_;
  std::unique_ptr<std::uint64_t[]> words_;
  Buffer<std::int64_t> ranks_;  // ids before each word
};

}  // namespace gz
