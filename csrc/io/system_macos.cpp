// macOS: fcntl(2), mmap(2), minherit(2) and rename(2) of its manual say what is used here.
#include <fcntl.h>
#include <mach/vm_inherit.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "io/posix.h"
#include "io/process.h"
#include "io/publish.h"

namespace gz {

const char* system_name() noexcept { return "macos"; }

int rename_in_one_step(const char* from, const char* to, Renaming how) {
  const unsigned flags = how == Renaming::kExchange ? RENAME_SWAP : RENAME_EXCL;
  return ::renameatx_np(AT_FDCWD, from, AT_FDCWD, to, flags);
}

namespace posix {

int open_unnamed(const std::string&) { return errno = 0, -1; }

// F_NOCACHE holds for a descriptor's open file, so that a duplicate would not do.
int reopen_direct(int file, const std::string& path) {
  const int again = open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
  struct stat first, second;
  if (::fstat(file, &first) == 0 && ::fstat(again, &second) == 0 && first.st_dev == second.st_dev &&
      first.st_ino == second.st_ino && ::fcntl(again, F_NOCACHE, 1) == 0) {
    return again;
  }
  if (again >= 0) ::close(again);
  return errno = 0, -1;  // the path names another file by now, or none
}

// Reads of any alignment are allowed; whole pages need no copy.
std::uint64_t direct_alignment(int) { return static_cast<std::uint64_t>(::getpagesize()); }

void will_need(int file, std::uint64_t offset, std::uint64_t size) noexcept {
  constexpr std::uint64_t kMost = std::numeric_limits<int>::max();
  radvisory advice{static_cast<off_t>(offset), static_cast<int>(std::min(size, kMost))};
  ::fcntl(file, F_RDADVISE, &advice);
}

// fsync(2) leaves bytes in the device's own cache; filesystems that know no more refuse
// F_FULLFSYNC.
int sync(int file) { return ::fcntl(file, F_FULLFSYNC) == 0 ? 0 : ::fsync(file); }

void want_huge_pages(void*, std::size_t) noexcept {}

void keep_from_children(void* pages, std::size_t size) noexcept {
  ::minherit(pages, size, VM_INHERIT_NONE);
}

}  // namespace posix
}  // namespace gz
