// POSIX systems of which nothing else is known: files have names, reads go through the page cache.
#include <unistd.h>

#include <cerrno>

#include "io/posix.h"
#include "io/process.h"
#include "io/publish.h"

namespace gz {

const char* system_name() noexcept { return "posix"; }

int rename_in_one_step(const char*, const char*, Renaming) {
  errno = ENOSYS;
  return -1;
}

namespace posix {

int open_unnamed(const std::string&) { return errno = 0, -1; }
int reopen_direct(int, const std::string&) { return errno = 0, -1; }
std::uint64_t direct_alignment(int) { return 0; }
void will_need(int, std::uint64_t, std::uint64_t) noexcept {}
int sync(int file) { return ::fsync(file); }
void want_huge_pages(void*, std::size_t) noexcept {}
void keep_from_children(void*, std::size_t) noexcept {}

}  // namespace posix
}  // namespace gz
