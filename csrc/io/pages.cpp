#include "io/pages.h"

#include <sys/mman.h>
#include <algorithm>

#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>

namespace gz {
namespace {

PageLock page_lock;

}  // namespace

void set_page_lock(PageLock functions) noexcept { page_lock = functions; }

void* map_pages(std::size_t size, bool locked) {
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
  if (!locked) return first;
  const int error = page_lock.lock == nullptr ? -1 : page_lock.lock(first, size, 0);
  if (error != 0) {
    ::munmap(first, size);
    throw std::runtime_error("cannot page-lock " + std::to_string(size) + " bytes: the device's " +
                             "runtime says " + std::to_string(error));
  }
  return first;
}

void unmap_pages(void* pages, std::size_t size, bool locked) noexcept {
  if (locked) page_lock.unlock(pages);
  ::munmap(pages, size);
}

std::shared_ptr<std::byte> make_pages(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  const std::size_t size = (std::max<std::size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
  return {static_cast<std::byte*>(map_pages(size, false)),
          [size](std::byte* at) { unmap_pages(at, size, false); }};
}

}  // namespace gz
