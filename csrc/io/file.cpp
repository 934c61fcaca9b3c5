#include "io/file.h"

#include <cerrno>

#include "base/errors.h"

namespace gz {

std::size_t File::read_at(void* to, std::size_t size, std::uint64_t offset) const {
  std::size_t done = 0;
  while (done < size) {
    const std::int64_t n =
        read_some(handle_, static_cast<char*>(to) + done, size - done, offset + done);
    if (n == -EINTR) continue;
    if (n < 0) throw OsError("cannot read", path_, static_cast<int>(-n));
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

}  // namespace gz
