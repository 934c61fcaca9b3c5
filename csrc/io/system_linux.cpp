// Linux: files without names, direct reads by /proc, huge pages, renames that exchange.
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <initializer_list>

#include "io/posix.h"
#include "io/process.h"
#include "io/publish.h"

namespace gz {

const char* system_name() noexcept { return "linux"; }

int rename_in_one_step(const char* from, const char* to, Renaming how) {
  const unsigned flags = how == Renaming::kExchange ? RENAME_EXCHANGE : RENAME_NOREPLACE;
  return ::renameat2(AT_FDCWD, from, AT_FDCWD, to, flags);
}

namespace {

// Opens, with errno 0 for these errors.
int open_unless(std::initializer_list<int> expected, const std::string& path, int flags) {
  const int file = posix::open(path, flags);
  if (file < 0 && std::ranges::find(expected, errno) != expected.end()) errno = 0;
  return file;
}

}  // namespace

namespace posix {

int open_unnamed(const std::string& folder) {
  // Kernels' errors on filesystems that have only files with names (NFS).
  return open_unless({EOPNOTSUPP, EISDIR, EINVAL}, folder, O_RDWR | O_TMPFILE);
}

int reopen_direct(int file, const std::string&) {
  // EINVAL: the filesystem has no direct reads. ENOENT: there is no /proc; the path is no
  // substitute, as it may name another file by now. The others: the file was opened with rights
  // that the process has given up since.
  return open_unless({EINVAL, ENOENT, EACCES, EPERM}, "/proc/self/fd/" + std::to_string(file),
                     O_RDONLY | O_DIRECT);
}

std::uint64_t direct_alignment(int file) {
  // The largest that any block device asks for; where the kernel cannot say, it is always right.
  constexpr std::uint64_t kSafeAlignment = 4096;
  // struct statx as far as Linux 6.1 fills it: C libraries of older systems have less of it.
  struct {
    std::uint32_t mask;
    std::array<std::uint32_t, 37> others;
    std::uint32_t memory_alignment, offset_alignment;
    std::array<std::uint32_t, 24> unused;
  } status{};
  static_assert(sizeof status == 256);
  constexpr unsigned kDirectAlignment = 0x2000;  // STATX_DIOALIGN
  if (::syscall(__NR_statx, file, "", AT_EMPTY_PATH, kDirectAlignment, &status) != 0 ||
      (status.mask & kDirectAlignment) == 0) {
    return kSafeAlignment;
  }
  const std::uint64_t largest = std::max(status.memory_alignment, status.offset_alignment);
  return largest == 0 ? 0 : std::bit_ceil(largest);
}

void will_need(int file, std::uint64_t offset, std::uint64_t size) noexcept {
  ::posix_fadvise(file, static_cast<off_t>(offset), static_cast<off_t>(size), POSIX_FADV_WILLNEED);
}

int sync(int file) { return ::fsync(file); }

void want_huge_pages(void* pages, std::size_t size) noexcept {
  ::madvise(pages, size, MADV_HUGEPAGE);  // refused where the kernel has none: nothing is lost
}

void keep_from_children(void* pages, std::size_t size) noexcept {
  ::madvise(pages, size, MADV_DONTFORK);
}

}  // namespace posix
}  // namespace gz
