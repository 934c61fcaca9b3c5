// Whole pages of memory from the operating system, for arrays too large for malloc to recycle well.
#pragma once

#include <cstddef>
#include <memory>

namespace gz {

// From this size on, memory starts on a huge page's boundary and asks the kernel for huge pages;
// not on Windows, which gives them to those alone who have a right to them.
inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Zeroed memory of `size` bytes, a multiple of 4096. Raises std::bad_alloc.
void* map_pages(std::size_t size);
void unmap_pages(void* pages, std::size_t size) noexcept;

// Memory for the kernel to read into behind the program's back: no business of a forked child's
// copy-on-write, which has none of it where that can be. For unmap_pages(); raises OsError.
std::byte* map_read_buffer(std::size_t size);

// Zeroed pages for `bytes` or more, which take no memory until they are written to.
std::shared_ptr<std::byte> make_pages(std::size_t bytes);

}  // namespace gz
