#include <windows.h>

#include <cerrno>

#include "io/publish.h"
#include "io/windows.h"

namespace gz {

// NTFS has a journal of names; there is nothing to sync.
void sync_directory(const std::string&) {}
void sync_folder_of(const std::string&) {}

bool exists(const std::string& path) {
  return ::GetFileAttributesW(windows::wide(path).c_str()) != INVALID_FILE_ATTRIBUTES;
}

int rename_plainly(const char* from, const char* to) {
  if (::MoveFileExW(windows::wide(from).c_str(), windows::wide(to).c_str(),
                    MOVEFILE_WRITE_THROUGH) != 0) {
    return 0;
  }
  const DWORD error = ::GetLastError();
  // A directory that is in the way is said to be denied.
  errno = error == ERROR_ACCESS_DENIED && exists(to) ? EEXIST : windows::errno_of(error);
  return -1;
}

int rename_in_one_step(const char* from, const char* to, Renaming how) {
  if (how == Renaming::kNew) return rename_plainly(from, to);
  errno = ENOSYS;
  return -1;
}

}  // namespace gz
