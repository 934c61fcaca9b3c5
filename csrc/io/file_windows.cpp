#include <windows.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/errors.h"
#include "io/file.h"
#include "io/windows.h"

namespace gz {
namespace {

using windows::errno_of;
using windows::handle_of;
using windows::last_errno;
using windows::wide;

// Others may read, write, rename and delete what is open here, as on other systems.
constexpr DWORD kShared = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;

// Reads of several threads wait for each other but on files that are opened "overlapped".
FileHandle open_file(const std::string& path, DWORD rights, DWORD how, DWORD flags = 0) {
  const std::wstring name = wide(path);
  const HANDLE found = ::CreateFileW(name.c_str(), rights, kShared, nullptr, how,
                                     FILE_FLAG_OVERLAPPED | flags, nullptr);
  if (found != INVALID_HANDLE_VALUE) return reinterpret_cast<FileHandle>(found);
  const DWORD error = ::GetLastError();
  const DWORD kind = ::GetFileAttributesW(name.c_str());
  if (kind != INVALID_FILE_ATTRIBUTES && (kind & FILE_ATTRIBUTE_DIRECTORY) != 0) {
    throw OsError("cannot read", path, EISDIR);
  }
  throw OsError("cannot open", path, errno_of(error));
}

BY_HANDLE_FILE_INFORMATION facts_of(HANDLE file, const std::string& path) {
  BY_HANDLE_FILE_INFORMATION facts;
  if (::GetFileInformationByHandle(file, &facts) == 0) {
    throw OsError("cannot stat", path, last_errno());
  }
  return facts;
}

bool is_same(HANDLE one, HANDLE other, const std::string& path) {
  const auto first = facts_of(one, path), second = facts_of(other, path);
  return first.dwVolumeSerialNumber == second.dwVolumeSerialNumber &&
         first.nFileIndexHigh == second.nFileIndexHigh &&
         first.nFileIndexLow == second.nFileIndexLow;
}

// Waits for a read or write at an offset: bytes, or minus an error number.
template <class Call>
std::int64_t wait_for(HANDLE file, std::uint64_t offset, const Call& call) {
  thread_local const std::unique_ptr<void, decltype(&::CloseHandle)> event(
      ::CreateEventW(nullptr, TRUE, FALSE, nullptr), ::CloseHandle);
  OVERLAPPED place{};
  place.Offset = static_cast<DWORD>(offset);
  place.OffsetHigh = static_cast<DWORD>(offset >> 32);
  place.hEvent = event.get();
  DWORD bytes = 0;
  const bool is_done = call(&place) != 0 || ::GetLastError() == ERROR_IO_PENDING;
  if (is_done && ::GetOverlappedResult(file, &place, &bytes, TRUE) != 0) return bytes;
  const DWORD error = ::GetLastError();
  return error == ERROR_HANDLE_EOF ? 0 : -errno_of(error);
}

// One call takes 32 bits of bytes.
DWORD at_once(std::size_t size) { return static_cast<DWORD>(std::min(size, std::size_t{1} << 30)); }

}  // namespace

File File::open(const std::string& path) {
  File file(open_file(path, GENERIC_READ, OPEN_EXISTING), path);
  if (::GetFileType(handle_of(file)) != FILE_TYPE_DISK) {
    throw FormatError(path, "file", "a device", "a regular file");
  }
  return file;
}

File File::create(const std::string& path) {
  return File(open_file(path, GENERIC_READ | GENERIC_WRITE, CREATE_NEW), path);
}

File File::temporary(const std::string& path) {
  constexpr DWORD kFlags = FILE_FLAG_DELETE_ON_CLOSE | FILE_ATTRIBUTE_TEMPORARY;
  return File(open_file(path, GENERIC_READ | GENERIC_WRITE | DELETE, CREATE_NEW, kFlags), path);
}

File File::lock(const std::string& path) {
  constexpr DWORD kFlags = FILE_FLAG_OPEN_REPARSE_POINT;
  File file(open_file(path, GENERIC_READ | GENERIC_WRITE, OPEN_ALWAYS, kFlags), path);
  if ((facts_of(handle_of(file), path).dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT) != 0) {
    throw FormatError(path, "file", "a symbolic link", "a regular file");
  }
  OVERLAPPED place{};
  place.OffsetHigh = 1U << 30;  // no file is that long: a lock keeps others from reading too
  if (::LockFileEx(handle_of(file), LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0,
                   &place) == 0) {
    const DWORD error = ::GetLastError();
    throw OsError("cannot lock", path, error == ERROR_IO_PENDING ? EAGAIN : errno_of(error));
  }
  return file;
}

std::optional<File> File::reopen_direct() const {
  const HANDLE found = ::ReOpenFile(handle_of(*this), GENERIC_READ, kShared,
                                    FILE_FLAG_OVERLAPPED | FILE_FLAG_NO_BUFFERING);
  if (found == INVALID_HANDLE_VALUE) return std::nullopt;
  File again(reinterpret_cast<FileHandle>(found), path_);
  if (!is_same(handle_of(*this), found, path_)) return std::nullopt;  // Wine goes by the name
  return again;
}

// That of the largest sectors. A read that a device refuses goes through the cache.
std::uint64_t File::direct_alignment() const { return 4096; }

File::~File() {
  if (handle_ != kNone) ::CloseHandle(handle_of(*this));
}

bool File::is_in_place() const {
  const HANDLE named =
      ::CreateFileW(wide(path_).c_str(), 0, kShared, nullptr, OPEN_EXISTING,
                    FILE_FLAG_OPEN_REPARSE_POINT | FILE_FLAG_BACKUP_SEMANTICS, nullptr);
  if (named == INVALID_HANDLE_VALUE) {
    const int code = last_errno();
    if (code == ENOENT) return false;
    throw OsError("cannot stat", path_, code);
  }
  const File other(reinterpret_cast<FileHandle>(named), path_);
  return is_same(handle_of(*this), named, path_);
}

std::uint64_t File::size() const {
  LARGE_INTEGER size;
  if (::GetFileSizeEx(handle_of(*this), &size) == 0) {
    throw OsError("cannot stat", path_, last_errno());
  }
  return static_cast<std::uint64_t>(size.QuadPart);
}

std::int64_t read_some(FileHandle file, void* to, std::size_t size, std::uint64_t offset) noexcept {
  const auto handle = reinterpret_cast<HANDLE>(file);
  return wait_for(handle, offset, [&](OVERLAPPED* place) {
    return ::ReadFile(handle, to, at_once(size), nullptr, place);
  });
}

void File::write_at(const void* from, std::size_t size, std::uint64_t offset) {
  for (std::size_t done = 0; done < size;) {
    const std::int64_t n = wait_for(handle_of(*this), offset + done, [&](OVERLAPPED* place) {
      return ::WriteFile(handle_of(*this), static_cast<const char*>(from) + done,
                         at_once(size - done), nullptr, place);
    });
    if (n < 0) throw OsError("cannot write", path_, static_cast<int>(-n));
    done += static_cast<std::size_t>(n);
  }
}

void File::will_need(std::uint64_t, std::uint64_t) const noexcept {}

void File::resize(std::uint64_t size) {
  FILE_END_OF_FILE_INFO end{};
  end.EndOfFile.QuadPart = static_cast<LONGLONG>(size);
  if (::SetFileInformationByHandle(handle_of(*this), FileEndOfFileInfo, &end, sizeof end) == 0) {
    throw OsError("cannot resize", path_, last_errno());
  }
}

void File::sync() {
  if (::FlushFileBuffers(handle_of(*this)) == 0) throw OsError("cannot sync", path_, last_errno());
}

}  // namespace gz
