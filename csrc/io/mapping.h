// A whole file mapped into memory, owned by everyone who still looks at it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "io/file.h"

namespace gz {

enum class MapMode {
  kReadOnly,     // the engine's own maps
  kCopyOnWrite,  // what users can touch: a write stays in this process, the file never changes
};

// Invariant: [data(), data()+size()) is the file as long as the object lives, unless the file is
// truncated; reads that must survive that go through guarded() in io/fault_guard.h.
// Thread safety: immutable after construction.
class Mapping {
 public:
  // Maps the first `size` bytes of the file; REQUIRES size > 0.
  static std::shared_ptr<const Mapping> map(const File& file, std::uint64_t size, MapMode mode);

  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  std::byte* data() const noexcept { return data_; }
  std::uint64_t size() const noexcept { return size_; }
  const std::string& path() const noexcept { return path_; }
  // Lets go of the pages that are in memory, for the kernel to find or read again at the next
  // touch: they no longer count as this process's. REQUIRES a map that was never written to.
  void forget_pages() const noexcept;
  // False when copy-on-write was asked for and the kernel's strict overcommit refused it.
  bool writable() const noexcept { return writable_; }

 private:
  Mapping(std::byte* data, std::uint64_t size, std::string path, bool writable);

  std::byte* data_;
  std::uint64_t size_;
  std::string path_;
  bool writable_;
};

// For mapping.cpp alone: the system's own calls.
// A map of the file's first bytes, to be written to or not; null and errno.
std::byte* map_file(const File& file, std::uint64_t size, bool writable) noexcept;
void unmap_file(std::byte* data, std::uint64_t size) noexcept;
void read_ahead(const std::byte* data, std::uint64_t size) noexcept;

// The file and offset that `address` belongs to among all live mappings; path empty if none.
struct MappedPlace {
  std::string path;
  std::uint64_t offset = 0;
};
MappedPlace find_mapped(const void* address);

// Asks the kernel to start reading these bytes, as far as they are of one live mapping.
void will_need(const void* address, std::uint64_t size) noexcept;

}  // namespace gz
