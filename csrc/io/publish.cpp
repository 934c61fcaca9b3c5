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

void publish_directory(const std::string& from, const std::string& to, bool replace) {
  sync_directory(from);
  int result = ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE);
  if (result != 0 && errno == EEXIST && replace) {
    result = ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE);
  }
  if (result != 0) throw OsError("cannot move the finished store to", to, errno);
  const std::string parent = std::filesystem::absolute(to).parent_path().string();
  sync_directory(parent);
}

}  // namespace gz
