// Whole pages of memory from the operating system, for arrays too large for malloc to recycle well.
#pragma once

#include <cstddef>

namespace gz {

// From this size on, memory starts on a huge page's boundary and asks the kernel for huge pages.
inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Zeroed memory of `size` bytes, a multiple of 4096. Raises std::bad_alloc.
void* map_pages(std::size_t size);
void unmap_pages(void* pages, std::size_t size) noexcept;

}  // namespace gz
