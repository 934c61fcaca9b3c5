// Which nodes of a type have an edge.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>

namespace gz {

// One bit a node. Thread safety: mark() may be called from any thread.
class NodeMarks {
 public:
  explicit NodeMarks(std::uint64_t num_nodes)
      : num_words_((num_nodes + 63) / 64), words_(new std::atomic<std::uint64_t>[num_words_]()) {}

  void mark(std::uint64_t node) noexcept {
    std::atomic<std::uint64_t>& word = words_[node / 64];
    const std::uint64_t bit = 1ULL << (node % 64);
    // Most nodes are marked already, and reading does not take the cache line from others.
    if ((word.load(std::memory_order_relaxed) & bit) == 0) {
      word.fetch_or(bit, std::memory_order_relaxed);
    }
  }

  std::uint64_t count() const noexcept {
    std::uint64_t marked = 0;
    for (std::uint64_t i = 0; i < num_words_; ++i) {
      marked += static_cast<std::uint64_t>(std::popcount(words_[i].load()));
    }
    return marked;
  }

 private:
  std::uint64_t num_words_;
  std::unique_ptr<std::atomic<std::uint64_t>[]> words_;
};

}  // namespace gz
