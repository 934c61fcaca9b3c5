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

// While one of these lives, memory is kept instead of freed: no more than makes, with what is in
// use, the most that was ever in use at once, and nothing that lay idle for long.
class Recycling {
 public:
  Recycling();
  Recycling(const Recycling&) = delete;
  Recycling& operator=(const Recycling&) = delete;
  ~Recycling();
};

// Bytes of large blocks; small ones are malloc's.
struct PoolState {
  std::size_t used = 0;
  std::size_t idle = 0;
  std::size_t peak = 0;  // of `used`, since recycling began
};
PoolState pool_state();

}  // namespace gz
