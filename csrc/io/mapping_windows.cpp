#include <windows.h>

#include <cerrno>

#include "io/mapping.h"
#include "io/windows.h"

namespace gz {
std::byte* map_file(const File& file, std::uint64_t size, bool writable) noexcept {
  void* at = nullptr;
  const HANDLE section = ::CreateFileMappingW(
      windows::handle_of(file), nullptr, writable ? PAGE_WRITECOPY : PAGE_READONLY,
      static_cast<DWORD>(size >> 32), static_cast<DWORD>(size), nullptr);
  if (section != nullptr) {
    const DWORD access = writable ? FILE_MAP_COPY : FILE_MAP_READ;
    at = ::MapViewOfFile(section, access, 0, 0, static_cast<SIZE_T>(size));
  }
  if (at == nullptr) errno = windows::last_errno();
  if (section != nullptr) ::CloseHandle(section);  // the view keeps it
  return static_cast<std::byte*>(at);
}

void unmap_file(std::byte* data, std::uint64_t) noexcept { ::UnmapViewOfFile(data); }

void read_ahead(const std::byte* data, std::uint64_t size) noexcept {
  WIN32_MEMORY_RANGE_ENTRY range{const_cast<std::byte*>(data), static_cast<SIZE_T>(size)};
  ::PrefetchVirtualMemory(::GetCurrentProcess(), 1, &range, 0);
}

// Pages that are not locked leave the working set.
void Mapping::forget_pages() const noexcept { ::VirtualUnlock(data_, size_); }

}  // namespace gz
