// Memory of dead batches, kept for the next ones. A batch of a hundred megabytes in fresh memory
// costs more in page faults than in copying.
#pragma once

#include <cstddef>

namespace gz {

// Memory of which `size` bytes may be used, at least as many as were asked for.
struct Block {
  void* data = nullptr;
  std::size_t size = 0;
};

// Thread safety: all of these may be called at once, also while the process ends.

// A block of at least `bytes`; its bytes hold no defined value. Raises std::bad_alloc.
Block take_block(std::size_t bytes);

// Gives a block back. It is kept for later while a Recycling lives, else freed.
void return_block(Block block) noexcept;

// Frees the blocks that are kept; returns how many bytes these were.
std::size_t free_idle_blocks() noexcept;

// While one of these lives, memory is kept instead of freed, but nothing that lay idle for long.
// With what is in use it makes no more than the most that was ever in use at once; and half as much
// again where none that lives is bounded, so that batches whose sizes differ find blocks of their
// size.
class Recycling {
 public:
  explicit Recycling(bool is_bounded);
  Recycling(const Recycling&) = delete;
  Recycling& operator=(const Recycling&) = delete;
  ~Recycling();

 private:
  bool is_bounded_;
};

// Bytes of large blocks; small ones are malloc's.
struct PoolState {
  std::size_t used = 0;
  std::size_t idle = 0;
  std::size_t peak = 0;  // of `used`, since recycling began
};
PoolState pool_state();

}  // namespace gz
