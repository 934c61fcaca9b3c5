// Whole pages of memory from the operating system, for arrays too large for malloc to recycle well.
#pragma once

#include <cstddef>
#include <memory>

namespace gz {

// From this size on, memory starts on a huge page's boundary and asks the kernel for huge pages.
inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Zeroed memory of `size` bytes, a multiple of 4096; `locked`: page-locked for a device that copies
// from it. Raises std::bad_alloc, and std::runtime_error where locking is refused.
void* map_pages(std::size_t size, bool locked);
void unmap_pages(void* pages, std::size_t size, bool locked) noexcept;

// Zeroed pages for `bytes` or more, which take no memory until they are written to.
std::shared_ptr<std::byte> make_pages(std::size_t bytes);

// How memory is page-locked: by functions of the device's runtime, which the engine does not link.
// Both return 0 for success. REQUIRES: set before anybody asks for locked memory.
struct PageLock {
  int (*lock)(void* pages, std::size_t size, unsigned flags) = nullptr;
  int (*unlock)(void* pages) = nullptr;
};
void set_page_lock(PageLock functions) noexcept;

}  // namespace gz
