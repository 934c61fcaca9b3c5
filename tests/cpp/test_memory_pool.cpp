// arrays/memory_pool: which memory is used again, and when it is freed.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "arrays/buffer.h"
#include "arrays/memory_pool.h"
#include "check.h"
#include "io/pages.h"

using namespace gz;

namespace {

constexpr std::size_t kMiB = 1 << 20;

}  // namespace

TEST(a_dead_block_is_the_next_one_of_its_size) {
  const Recycling recycling(true);
  const Block first = take_block(10 * kMiB);
  CHECK(first.size >= 10 * kMiB && first.size <= 12 * kMiB);
  return_block(first);
  const Block second = take_block(10 * kMiB - 5000);
  CHECK(second.data == first.data);
  const Block third = take_block(10 * kMiB);
  CHECK(third.data != second.data);
  return_block(second);
  const Block small = take_block(5 * kMiB);  // not out of something twice as large
  CHECK(small.size < 6 * kMiB);
  for (const Block& block : {third, small}) return_block(block);
}

TEST(live_blocks_never_overlap) {
  const Recycling recycling(true);
  std::atomic<bool> same{true};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<std::pair<Block, unsigned char>> held;
      for (int i = 0; i < 300; ++i) {
        const auto mark = static_cast<unsigned char>(t * 60 + i % 60);
        const Block block = take_block((1 + static_cast<std::size_t>(i * 7 + t) % 20) * 64 << 10);
        std::memset(block.data, mark, block.size);
        held.emplace_back(block, mark);
        if (held.size() < 5) continue;
        const auto [oldest, expected] = held.front();
        const auto* const bytes = static_cast<const unsigned char*>(oldest.data);
        for (std::size_t at = 0; at < oldest.size; at += 997) same = same && bytes[at] == expected;
        return_block(oldest);
        held.erase(held.begin());
      }
      for (const auto& [block, mark] : held) return_block(block);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(same.load());
}

TEST(no_more_is_kept_than_was_ever_used) {
  for (const bool is_bounded : {true, false}) {
    const Recycling recycling(false), other(is_bounded);
    std::size_t most = 0;
    for (std::size_t size = 1; size < 40; ++size) {  // no size fits the one before
      const Block one = take_block(size * kMiB);
      const Block two = take_block(size * kMiB);
      return_block(one);
      return_block(two);
      const PoolState now = pool_state();
      CHECK(now.used + now.idle <= now.peak + (is_bounded ? 0 : now.peak / 2));
      most = std::max(most, now.used + now.idle - now.peak);
    }
    CHECK(is_bounded || most > 0);
  }
}

// One batch lives while the next is made, as in `for batch in loader`; each has a few small arrays
// and a large one, of sizes that go up and down.
TEST(batches_that_take_turns_soon_ask_for_no_new_memory) {
  const Recycling recycling(true);
  std::set<void*> seen;
  std::vector<Block> last;
  std::size_t fresh = 0;
  for (std::size_t batch = 0; batch < 60; ++batch) {
    const std::size_t size = 100 + batch * 7 % 13;  // per cent
    std::vector<Block> made;
    for (const std::size_t kib : {2100, 2100, 2100, 4200, 1000, 130, 62000}) {
      made.push_back(take_block(kib * 1024 * size / 100));
      const bool is_fresh = seen.insert(made.back().data).second;
      if (batch >= 30 && is_fresh) ++fresh;
    }
    for (const Block& block : last) return_block(block);
    last = std::move(made);
  }
  for (const Block& block : last) return_block(block);
  CHECK(fresh == 0);
}

TEST(nothing_is_kept_without_recycling) {
  {
    const Recycling recycling(true);
    return_block(take_block(3 * kMiB));
    CHECK(pool_state().idle >= 3 * kMiB);
    CHECK(free_idle_blocks() >= 3 * kMiB);
    CHECK(pool_state().idle == 0);
    return_block(take_block(3 * kMiB));
    CHECK(pool_state().idle >= 3 * kMiB);
  }
  CHECK(pool_state().idle == 0);
  return_block(take_block(3 * kMiB));
  CHECK(pool_state().idle == 0 && pool_state().used == 0);
  return_block(Block{});
}

TEST(no_block_is_larger_than_memory) {
  CHECK_THROWS(std::bad_alloc, "", take_block(std::size_t{1} << 60));
  CHECK(pool_state().used == 0);
}

TEST(large_blocks_begin_where_huge_pages_do) {
  if (gz::test::needs("posix", "Windows gives huge pages to those who have a right to them"))
    return;
  for (const std::size_t size : {kHugePage, 3 * kHugePage}) {
    const Block block = take_block(size);
    CHECK(reinterpret_cast<std::uintptr_t>(block.data) % kHugePage == 0);
    std::memset(block.data, 1, block.size);
    return_block(block);
  }
}
