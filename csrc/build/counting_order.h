// The stable order of things by a small key.
#pragma once

#include <cstdint>
#include <cstring>

namespace gz {

// Puts 0 … n - 1 into `order` by key_of(i) < num_keys, equal keys in their old order. ends[key]
// says where a key's part of `order` ends, which is where the next one's begins.
template <class Index, class KeyOf>
void counting_order(Index n, std::uint64_t num_keys, const KeyOf& key_of, Index* ends,
                    Index* order) {
  std::memset(ends, 0, num_keys * sizeof(Index));
  for (Index i = 0; i < n; ++i) ++ends[key_of(i)];
  Index start = 0;
  for (std::uint64_t key = 0; key < num_keys; ++key) {
    const Index count = ends[key];
    ends[key] = start;
    start += count;
  }
  for (Index i = 0; i < n; ++i) order[ends[key_of(i)]++] = i;
}

}  // namespace gz
