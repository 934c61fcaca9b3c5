// Readers, files for them, and what they completed.
#pragma once

#include <array>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "io/async_reader.h"

namespace gz::test {

// The readers there are here: a container may forbid io_uring.
inline std::vector<ReaderKind> kinds() {
  std::vector<ReaderKind> found{ReaderKind::kPool};
  if (uring_refusal().empty()) found.push_back(ReaderKind::kUring);
  return found;
}

inline std::string random_bytes(std::size_t size) {
  std::mt19937_64 random(size);
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

inline std::string make_file(const std::string& path, std::size_t size) {
  const std::string bytes = random_bytes(size);
  std::ofstream(path, std::ios::binary) << bytes;
  return bytes;
}

// Waits for everything under way; completions by tag.
inline std::vector<Completion> finish(AsyncReader& reader, std::size_t requests) {
  std::vector<Completion> found(requests);
  std::vector<int> times(requests);
  std::array<Completion, 5> done;
  while (const std::size_t n = reader.wait(done)) {
    for (std::size_t i = 0; i < n; ++i) {
      found[done[i].tag] = done[i];
      ++times[done[i].tag];
    }
  }
  CHECK(times == std::vector<int>(requests, 1));
  CHECK(reader.under_way() == 0);
  return found;
}

}  // namespace gz::test
