#include <windows.h>

#include <cerrno>

#include "base/errors.h"
#include "io/mapping.h"
#include "io/windows.h"

namespace gz {
namespace {

void* map_file(const File& file, std::uint64_t size, DWORD protection, DWORD access) {
  const HANDLE section =
      ::CreateFileMappingW(windows::handle_of(file), nullptr, protection,
                           static_cast<DWORD>(size >> 32), static_cast<DWORD>(size), nullptr);
  if (section == nullptr) return nullptr;
  void* const at = ::MapViewOfFile(section, access, 0, 0, static_cast<SIZE_T>(size));
  const DWORD error = ::GetLastError();
  ::CloseHandle(section);  // the view keeps it
  ::SetLastError(error);
  return at;
}

}  // namespace

std::shared_ptr<const Mapping> Mapping::map(const File& file, std::uint64_t size, MapMode mode) {
  bool writable = mode == MapMode::kCopyOnWrite;
  void* at = nullptr;
  if (writable) {
    at = map_file(file, size, PAGE_WRITECOPY, FILE_MAP_COPY);
    // The system promises memory for every page of the file; for a large one it has not that much.
    if (at == nullptr && windows::last_errno() != ENOMEM) {
      throw OsError("cannot map", file.path(), windows::last_errno());
    }
  }
  if (at == nullptr) {
    writable = false;
    at = map_file(file, size, PAGE_READONLY, FILE_MAP_READ);
    if (at == nullptr) throw OsError("cannot map", file.path(), windows::last_errno());
  }
  return std::shared_ptr<const Mapping>(
      new Mapping(static_cast<std::byte*>(at), size, file.path(), writable));
}

void unmap_file(std::byte* data, std::uint64_t) noexcept { ::UnmapViewOfFile(data); }

void read_ahead(const std::byte* data, std::uint64_t size) noexcept {
  WIN32_MEMORY_RANGE_ENTRY range{const_cast<std::byte*>(data), static_cast<SIZE_T>(size)};
  ::PrefetchVirtualMemory(::GetCurrentProcess(), 1, &range, 0);
}

// Pages that are not locked leave the working set.
void Mapping::forget_pages() const noexcept { ::VirtualUnlock(data_, size_); }

}  // namespace gz
