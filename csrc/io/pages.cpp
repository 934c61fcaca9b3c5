#include "io/pages.h"

#include <sys/mman.h>
#include <algorithm>

#include <cstdint>
#include <new>

namespace gz {

void* map_pages(std::size_t size) {
  const bool huge = size >= kHugePage;
  const std::size_t spare = huge ? kHugePage : 0;
  void* const at =
      ::mmap(nullptr, size + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  auto* first = static_cast<std::byte*>(at);
  if (huge) {
    const std::size_t before =
        (kHugePage - reinterpret_cast<std::uintptr_t>(at) % kHugePage) % kHugePage;
    if (before > 0) ::munmap(first, before);
    first += before;
    if (spare > before) ::munmap(first + size, spare - before);
#ifdef MADV_HUGEPAGE
    ::madvise(first, size, MADV_HUGEPAGE);  // refused where the kernel has none: nothing is lost
#endif
  }
  return first;
}

void unmap_pages(void* pages, std::size_t size) noexcept { ::munmap(pages, size); }

std::shared_ptr<std::byte> make_pages(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  const std::size_t size = (std::max<std::size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
  return {static_cast<std::byte*>(map_pages(size)),
          [size](std::byte* at) { unmap_pages(at, size); }};
}

}  // namespace gz
