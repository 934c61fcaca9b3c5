// Memory for reads under way: handed out in order and used again as soon as the oldest are done, so
// that a few megabytes serve any number of reads of any size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include "io/origin.h"

namespace gz {

// Not thread-safe.
class ReadBuffer {
 public:
  static constexpr std::size_t kAlignment = 4096;

  struct Piece {
    std::byte* data = nullptr;  // aligned to kAlignment; nullptr when there is no room now
    std::uint64_t ticket = 0;   // 0, 1, 2 …
  };

  // Reserves at least `bytes`; they become RAM when they are first read into. Raises OsError.
  explicit ReadBuffer(std::size_t bytes);
  ReadBuffer(const ReadBuffer&) = delete;
  ReadBuffer& operator=(const ReadBuffer&) = delete;
  ~ReadBuffer();

  // A contiguous piece of `size` bytes. REQUIRES size > 0. With nothing handed out, any size up to
  // memory().size() finds room.
  Piece take(std::size_t size);
  // The piece of a ticket that was not given back.
  std::byte* at(std::uint64_t ticket) const noexcept {
    return memory_.data() + taken_[ticket - first_ticket_].begin;
  }
  void give_back(std::uint64_t ticket);
  // Takes back everything; tickets begin at 0 again.
  void clear() noexcept {
    taken_.clear();
    first_ticket_ = 0;
  }

  std::span<std::byte> memory() const noexcept { return memory_; }

 private:
  struct Taken {
    std::size_t begin;
    bool returned;
  };

  std::span<std::byte> memory_;
  std::deque<Taken> taken_;         // oldest first
  std::uint64_t first_ticket_ = 0;  // of taken_.front()
  std::size_t end_ = 0;             // where the youngest piece ends
  Origin origin_;
};

}  // namespace gz
