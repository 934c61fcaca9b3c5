#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/errors.h"
#include "io/publish.h"

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

void sync_folder_of(const std::string& path) {
  sync_directory(std::filesystem::absolute(path).parent_path().string());
}

bool exists(const std::string& path) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0;
}

int rename_plainly(const char* from, const char* to) { return ::rename(from, to); }

}  // namespace gz
