// Windows: the process, errors, paths, pages of memory.
#include <windows.h>

#include <cerrno>
#include <new>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "io/pages.h"
#include "io/process.h"
#include "io/windows.h"

namespace gz {

const char* system_name() noexcept { return "windows"; }

std::int64_t process_id() noexcept { return ::GetCurrentProcessId(); }

void at_fork(void (*)(), void (*)(), void (*)()) {}  // there are no forks

std::thread start_thread(std::function<void()> run) { return std::thread(std::move(run)); }

void* map_pages(std::size_t size) {
  void* const at = ::VirtualAlloc(nullptr, size, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
  if (at == nullptr) throw std::bad_alloc();
  return at;
}

void unmap_pages(void* pages, std::size_t) noexcept { ::VirtualFree(pages, 0, MEM_RELEASE); }

std::byte* map_read_buffer(std::size_t size) {
  void* const at = ::VirtualAlloc(nullptr, size, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
  if (at == nullptr) throw OsError("cannot allocate", "read buffers", windows::last_errno());
  return static_cast<std::byte*>(at);
}

namespace windows {

int errno_of(unsigned long error) noexcept {
  constexpr std::pair<unsigned long, int> kKnown[] = {
      {ERROR_FILE_NOT_FOUND, ENOENT},      {ERROR_PATH_NOT_FOUND, ENOENT},
      {ERROR_INVALID_NAME, ENOENT},        {ERROR_BAD_NETPATH, ENOENT},
      {ERROR_INVALID_DRIVE, ENOENT},       {ERROR_ACCESS_DENIED, EACCES},
      {ERROR_SHARING_VIOLATION, EACCES},   {ERROR_WRITE_PROTECT, EROFS},
      {ERROR_USER_MAPPED_FILE, EACCES},    {ERROR_FILE_EXISTS, EEXIST},
      {ERROR_ALREADY_EXISTS, EEXIST},      {ERROR_LOCK_VIOLATION, EAGAIN},
      {ERROR_DISK_FULL, ENOSPC},           {ERROR_HANDLE_DISK_FULL, ENOSPC},
      {ERROR_NOT_ENOUGH_MEMORY, ENOMEM},   {ERROR_OUTOFMEMORY, ENOMEM},
      {ERROR_COMMITMENT_LIMIT, ENOMEM},    {ERROR_NO_SYSTEM_RESOURCES, ENOMEM},
      {ERROR_INVALID_PARAMETER, EINVAL},   {ERROR_INVALID_FUNCTION, EINVAL},
      {ERROR_NOT_SUPPORTED, EINVAL},       {ERROR_FILENAME_EXCED_RANGE, ENAMETOOLONG},
      {ERROR_TOO_MANY_OPEN_FILES, EMFILE}, {ERROR_DIRECTORY, ENOTDIR},
      {ERROR_DIR_NOT_EMPTY, ENOTEMPTY},
  };
  for (const auto& [known, number] : kKnown) {
    if (known == error) return number;
  }
  return EIO;
}

int last_errno() noexcept { return errno_of(::GetLastError()); }

std::wstring wide(const std::string& path) {
  const auto bytes = static_cast<int>(path.size());
  std::wstring name(path.size(), L'\0');
  const int length =
      ::MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path.data(), bytes, name.data(), bytes);
  if (length == 0 && bytes > 0) throw OsError("no UTF-8 is in", path, EINVAL);
  name.resize(static_cast<std::size_t>(length));
  // From here on, shorter ones are left to the system, which knows more of their forms.
  if (name.size() < MAX_PATH - 20 || name.starts_with(L"\\\\")) return name;
  std::wstring whole(::GetFullPathNameW(name.c_str(), 0, nullptr, nullptr), L'\0');
  whole.resize(
      ::GetFullPathNameW(name.c_str(), static_cast<DWORD>(whole.size()), whole.data(), nullptr));
  return L"\\\\?\\" + whole;
}

}  // namespace windows
}  // namespace gz
