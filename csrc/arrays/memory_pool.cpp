#include "arrays/memory_pool.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

#include "io/pages.h"
#include "io/process.h"

namespace gz {
namespace {

using Clock = std::chrono::steady_clock;

// Smaller blocks are malloc's, which recycles them itself.
constexpr std::size_t kLarge = 64 << 10;
// A block that lay idle for this long is of a size that is not wanted any more.
constexpr std::chrono::seconds kIdleTime{10};
constexpr std::size_t kMaxIdle = 1024;

// Sizes come in steps of an eighth of a power of two, so that batches of about the same size take
// each other's blocks.
std::size_t rounded(std::size_t bytes) {
  const std::size_t step = std::max<std::size_t>(std::bit_floor(bytes) / 8, 4096);
  return (bytes + step - 1) / step * step;
}

class Pool {
 public:
  Pool() {
    idle_.reserve(kMaxIdle);
    // A thread may hold the lock while another one forks.
    at_fork([] { pool().mutex_.lock(); }, [] { pool().mutex_.unlock(); },
            [] { pool().mutex_.unlock(); });
  }

  static Pool& pool() {
    static Pool* const only = new Pool;  // outlives the tensors that end with the interpreter
    return *only;
  }

  Block take(std::size_t bytes) {
    const std::size_t size = rounded(bytes);
    std::vector<Block> unwanted;
    {
      const std::lock_guard lock(mutex_);
      used_ += size;
      const auto found = best_for(bytes);
      if (found != idle_.end()) {
        const Block block = found->block;
        idle_.erase(found);
        idle_bytes_ -= block.size;
        used_ += block.size - size;
        peak_ = std::max(peak_, used_);
        return block;
      }
      peak_ = std::max(peak_, used_);
      const std::size_t most = bounded_ > 0 ? peak_ : peak_ + peak_ / 2;
      while (!idle_.empty() && used_ + idle_bytes_ > most) drop(least_wanted(size), unwanted);
    }
    free_all(unwanted);
    try {
      return {map_pages(size), size};
    } catch (...) {
      const std::lock_guard lock(mutex_);
      used_ -= size;
      throw;
    }
  }

  void give_back(Block block) noexcept {
    std::vector<Block> unwanted;
    {
      const std::lock_guard lock(mutex_);
      used_ -= block.size;
      const Clock::time_point now = Clock::now();
      if (recyclers_ > 0) {
        if (idle_.size() == kMaxIdle) drop(idle_.begin(), unwanted);
        idle_.push_back({block, now});
        idle_bytes_ += block.size;
      } else {
        unwanted.push_back(block);
      }
      while (!idle_.empty() && now - idle_.front().since > kIdleTime) {
        drop(idle_.begin(), unwanted);
      }
    }
    free_all(unwanted);
  }

  void begin_recycling(bool is_bounded) {
    const std::lock_guard lock(mutex_);
    if (recyclers_++ == 0) peak_ = used_;
    bounded_ += is_bounded;
  }

  void end_recycling(bool is_bounded) noexcept {
    {
      const std::lock_guard lock(mutex_);
      bounded_ -= is_bounded;
      if (--recyclers_ > 0) return;
    }
    free_idle();
  }

  std::size_t free_idle() noexcept {
    std::vector<Block> unwanted;
    std::size_t bytes = 0;
    {
      const std::lock_guard lock(mutex_);
      bytes = idle_bytes_;
      while (!idle_.empty()) drop(idle_.begin(), unwanted);
    }
    free_all(unwanted);
    return bytes;
  }

  PoolState state() {
    const std::lock_guard lock(mutex_);
    return {used_, idle_bytes_, peak_};
  }

 private:
  struct Idle {
    Block block;
    Clock::time_point since;
  };

  using Place = std::vector<Idle>::iterator;

  // REQUIRES the lock. The newest block that will do, which may be in the caches still; where
  // memory is bounded the smallest, so that larger ones are left for those who need them, and of
  // equal ones the newest. The end where there is none.
  Place best_for(std::size_t bytes) {
    Place best = idle_.end();
    for (Place at = idle_.begin(); at != idle_.end(); ++at) {
      if (at->block.size < bytes || at->block.size > bytes + bytes / 2) continue;
      const bool is_better = best == idle_.end() || at->block.size <= best->block.size;
      if (is_better || bounded_ == 0) best = at;
    }
    return best;
  }

  // REQUIRES the lock, and idle_ not empty. The block to drop where `size` bytes are taken anew:
  // one that has become too small for that, not a large one which the same batch will ask for next.
  // So blocks come to be as large as the largest batches need them, and stay.
  Place least_wanted(std::size_t size) {
    const auto is_worse = [size](const Idle& a, const Idle& b) {
      const bool a_below = a.block.size < size, b_below = b.block.size < size;
      if (a_below != b_below) return a_below;
      return a_below ? a.block.size > b.block.size : a.block.size < b.block.size;
    };
    return std::min_element(idle_.begin(), idle_.end(), is_worse);
  }

  // REQUIRES the lock.
  void drop(Place at, std::vector<Block>& unwanted) {
    unwanted.push_back(at->block);
    idle_bytes_ -= at->block.size;
    idle_.erase(at);
  }

  // Without the lock: to unmap takes long.
  static void free_all(const std::vector<Block>& blocks) noexcept {
    for (const Block& block : blocks) unmap_pages(block.data, block.size);
  }

  std::mutex mutex_;
  std::vector<Idle> idle_;  // the oldest first, at most kMaxIdle
  std::size_t idle_bytes_ = 0;
  std::size_t used_ = 0;
  std::size_t peak_ = 0;
  int recyclers_ = 0;
  int bounded_ = 0;  // of these
};

}  // namespace

Block take_block(std::size_t bytes) {
  if (bytes >= kLarge) return Pool::pool().take(bytes);
  void* const data = std::malloc(std::max<std::size_t>(bytes, 1));
  if (data == nullptr) throw std::bad_alloc();
  return {data, bytes};
}

void return_block(Block block) noexcept {
  if (block.size >= kLarge) {
    Pool::pool().give_back(block);
  } else {
    std::free(block.data);
  }
}

std::size_t free_idle_blocks() noexcept { return Pool::pool().free_idle(); }

Recycling::Recycling(bool is_bounded) : is_bounded_(is_bounded) {
  Pool::pool().begin_recycling(is_bounded);
}
Recycling::~Recycling() { Pool::pool().end_recycling(is_bounded_); }

PoolState pool_state() { return Pool::pool().state(); }

}  // namespace gz
