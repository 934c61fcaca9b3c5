// A cache of rows with SIEVE eviction (Zhang et al., NSDI '24, "SIEVE is Simpler than LRU"), as DGL
// GraphBolt has it in front of its features: asked for a batch at a time, filled with what missed.
// Compiled and called by sieve.py.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace {

constexpr std::int32_t kNone = -1;

class Sieve {
 public:
  // Rows are 0 … num_rows - 1, `capacity` of them are kept.
  Sieve(std::int64_t num_rows, std::int32_t capacity, std::size_t row_bytes)
      : row_bytes_(row_bytes),
        slot_of_(static_cast<std::size_t>(num_rows), kNone),
        slots_(static_cast<std::size_t>(capacity)),
        data_(new std::byte[static_cast<std::size_t>(capacity) * row_bytes]) {}

  // Copies the rows that are here to their places in `out`, and notes the places of all others.
  std::int64_t query(const std::int64_t* rows, std::int64_t count, std::byte* out,
                     std::int64_t* missed) {
    std::int64_t misses = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int32_t slot = slot_of_[static_cast<std::size_t>(rows[i])];
      if (slot == kNone) {
        missed[misses++] = i;
        continue;
      }
      slots_[static_cast<std::size_t>(slot)].visited = true;
      std::memcpy(out + static_cast<std::size_t>(i) * row_bytes_, data(slot), row_bytes_);
    }
    return misses;
  }

  // Takes in the rows at these places of a batch, from `out`.
  void insert(const std::int64_t* rows, const std::int64_t* places, std::int64_t count,
              const std::byte* out) {
    if (slots_.empty()) return;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto row = static_cast<std::size_t>(rows[places[i]]);
      if (slot_of_[row] != kNone) continue;  // it was in the batch twice
      const std::int32_t slot = size_ < capacity() ? size_++ : evict();
      Slot& own = slots_[static_cast<std::size_t>(slot)];
      own = {rows[places[i]], kNone, head_, false};
      (head_ == kNone ? tail_ : slots_[static_cast<std::size_t>(head_)].newer) = slot;
      head_ = slot;
      slot_of_[row] = slot;
      std::memcpy(data(slot), out + static_cast<std::size_t>(places[i]) * row_bytes_, row_bytes_);
    }
  }

 private:
  // Slots form a queue by the time of insertion.
  struct Slot {
    std::int64_t row = 0;
    std::int32_t newer = kNone;
    std::int32_t older = kNone;
    bool visited = false;
  };

  std::int32_t capacity() const { return static_cast<std::int32_t>(slots_.size()); }

  std::byte* data(std::int32_t slot) {
    return data_.get() + static_cast<std::size_t>(slot) * row_bytes_;
  }

  // The hand goes from old to new, and round again; it spares and forgets what was visited.
  std::int32_t evict() {
    std::int32_t slot = hand_ == kNone ? tail_ : hand_;
    while (slots_[static_cast<std::size_t>(slot)].visited) {
      Slot& spared = slots_[static_cast<std::size_t>(slot)];
      spared.visited = false;
      slot = spared.newer == kNone ? tail_ : spared.newer;
    }
    const Slot& gone = slots_[static_cast<std::size_t>(slot)];
    hand_ = gone.newer;
    (gone.newer == kNone ? head_ : slots_[static_cast<std::size_t>(gone.newer)].older) = gone.older;
    (gone.older == kNone ? tail_ : slots_[static_cast<std::size_t>(gone.older)].newer) = gone.newer;
    slot_of_[static_cast<std::size_t>(gone.row)] = kNone;
    return slot;
  }

  std::size_t row_bytes_;
  std::vector<std::int32_t> slot_of_;
  std::vector<Slot> slots_;
  std::unique_ptr<std::byte[]> data_;  // left as it is, so that pages come with the rows
  std::int32_t size_ = 0;
  std::int32_t head_ = kNone;  // newest
  std::int32_t tail_ = kNone;  // oldest
  std::int32_t hand_ = kNone;
};

}  // namespace

extern "C" {

void* sieve_new(std::int64_t num_rows, std::int32_t capacity, std::int64_t row_bytes) {
  return new Sieve(num_rows, capacity, static_cast<std::size_t>(row_bytes));
}

void sieve_delete(void* cache) { delete static_cast<Sieve*>(cache); }

std::int64_t sieve_query(void* cache, const std::int64_t* rows, std::int64_t count, void* out,
                         std::int64_t* missed) {
  return static_cast<Sieve*>(cache)->query(rows, count, static_cast<std::byte*>(out), missed);
}

void sieve_insert(void* cache, const std::int64_t* rows, const std::int64_t* places,
                  std::int64_t count, const void* out) {
  static_cast<Sieve*>(cache)->insert(rows, places, count, static_cast<const std::byte*>(out));
}
}
