#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <new>

#include "base/errors.h"
#include "io/pages.h"
#include "io/posix.h"

namespace gz {
namespace {

void* map_anonymous(std::size_t size) {
  return ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
}

}  // namespace

void* map_pages(std::size_t size) {
  const bool huge = size >= kHugePage;
  const std::size_t spare = huge ? kHugePage : 0;
  void* const at = map_anonymous(size + spare);
  if (at == MAP_FAILED) throw std::bad_alloc();
  auto* first = static_cast<std::byte*>(at);
  if (huge) {
    const std::size_t before =
        (kHugePage - reinterpret_cast<std::uintptr_t>(at) % kHugePage) % kHugePage;
    if (before > 0) ::munmap(first, before);
    first += before;
    if (spare > before) ::munmap(first + size, spare - before);
    posix::want_huge_pages(first, size);
  }
  return first;
}

void unmap_pages(void* pages, std::size_t size) noexcept { ::munmap(pages, size); }

std::byte* map_read_buffer(std::size_t size) {
  void* const at = map_anonymous(size);
  if (at == MAP_FAILED) throw OsError("cannot allocate", "read buffers", errno);
  posix::keep_from_children(at, size);
  return static_cast<std::byte*>(at);
}

}  // namespace gz
