// Calls that POSIX systems have each in its own way, for x_posix.cpp alone: system_linux.cpp,
// system_macos.cpp, and system_plain.cpp, which does without.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "io/file.h"

namespace gz::posix {

// open(2), repeated where a signal interrupts it; close-on-exec. -1 and errno.
int open(const std::string& path, int flags);

inline int descriptor(const File& file) noexcept { return static_cast<int>(file.handle()); }

// A file in `folder` that never has a name, for writing and reading back; -1 and errno, which is 0
// where files have names.
int open_unnamed(const std::string& folder);

// The file with this descriptor and path once more, for reading past the page cache; -1 and errno,
// which is 0 where it cannot be, or not for certain.
int reopen_direct(int file, const std::string& path);
// Alignment of reads from such a descriptor; 0: the system says that none are direct.
std::uint64_t direct_alignment(int file);

// Has the system begin to read, or does nothing.
void will_need(int file, std::uint64_t offset, std::uint64_t size) noexcept;

// fsync(2), down to the device: 0, or -1 and errno.
int sync(int file);

// Asks for huge pages in anonymous memory.
void want_huge_pages(void* pages, std::size_t size) noexcept;
// Leaves pages out of children that are forked from now on.
void keep_from_children(void* pages, std::size_t size) noexcept;

}  // namespace gz::posix
