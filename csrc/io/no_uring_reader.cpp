#include <cerrno>

#include "base/errors.h"
#include "io/read_step.h"

namespace gz {

std::unique_ptr<AsyncReader> make_uring_reader(int) {
  throw OsError("this build has no", "io_uring", ENOSYS);
}

}  // namespace gz
