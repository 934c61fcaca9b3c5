#include "io/publish.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/errors.h"

namespace gz {

void sync_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw OsError("cannot open directory", path, errno);
  const int result = ::fsync(fd);
  const int code = errno;
  ::close(fd);
  // Some network filesystems cannot sync a directory and say EINVAL; the rename still holds there.
  if (result != 0 && code != EINVAL) throw OsError("cannot sync directory", path, code);
}

int rename_with_flags(const char* from, const char* to, unsigned flags) {
  return ::renameat2(AT_FDCWD, from, AT_FDCWD, to, flags);
}

namespace {

[[noreturn]] void throw_not_moved(const std::string& to, int code) {
  throw OsError("cannot move the finished store to", to, code);
}

// For filesystems without the flags: two or three plain renames, undone if the second fails.
void publish_in_steps(const std::string& from, const std::string& to, bool replace) {
  const bool exists = std::filesystem::exists(to);
  if (exists && !replace) throw_not_moved(to, EEXIST);
  // Not a name that the next writer would take for an abandoned scratch directory.
  const std::string aside = to + ".replaced";
  if (exists && ::rename(to.c_str(), aside.c_str()) != 0) throw_not_moved(to, errno);
  if (::rename(from.c_str(), to.c_str()) != 0) {
    const int code = errno;
    if (exists) ::rename(aside.c_str(), to.c_str());
    throw_not_moved(to, code);
  }
  if (exists && ::rename(aside.c_str(), from.c_str()) != 0) throw_not_moved(from, errno);
}

}  // namespace

void publish_directory(const std::string& from, const std::string& to, bool replace,
                       RenameWithFlags rename) {
  sync_directory(from);
  unsigned flags = RENAME_NOREPLACE;
  int result = rename(from.c_str(), to.c_str(), flags);
  if (result != 0 && errno == EEXIST && replace) {
    flags = RENAME_EXCHANGE;
    result = rename(from.c_str(), to.c_str(), flags);
  }
  const bool in_steps = result != 0;
  if (in_steps) {
    if (errno != EINVAL && errno != ENOSYS) throw_not_moved(to, errno);
    publish_in_steps(from, to, replace);
  }
  try {
    sync_directory(std::filesystem::absolute(to).parent_path().string());
  } catch (...) {
    // Nobody may delete what was replaced before it is known to be so on the device.
    if (!in_steps) rename(to.c_str(), from.c_str(), flags);
    throw;
  }
}

}  // namespace gz
