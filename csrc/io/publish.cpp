#include "io/publish.h"

#include <cerrno>

#include "base/errors.h"

namespace gz {
namespace {

[[noreturn]] void throw_not_moved(const std::string& to, int code) {
  throw OsError("cannot move the finished store to", to, code);
}

// For where it cannot be done in one step: two or three plain renames, undone if the second fails.
void publish_in_steps(const std::string& from, const std::string& to, bool replace) {
  const bool is_there = exists(to);
  if (is_there && !replace) throw_not_moved(to, EEXIST);
  // Not a name that the next writer would take for an abandoned scratch directory.
  const std::string aside = to + ".replaced";
  if (is_there && rename_plainly(to.c_str(), aside.c_str()) != 0) throw_not_moved(to, errno);
  if (rename_plainly(from.c_str(), to.c_str()) != 0) {
    const int code = errno;
    if (is_there) rename_plainly(aside.c_str(), to.c_str());
    throw_not_moved(to, code);
  }
  if (is_there && rename_plainly(aside.c_str(), from.c_str()) != 0) throw_not_moved(from, errno);
}

}  // namespace

void publish_directory(const std::string& from, const std::string& to, bool replace,
                       RenameInOneStep rename) {
  sync_directory(from);
  Renaming how = Renaming::kNew;
  int result = rename(from.c_str(), to.c_str(), how);
  if (result != 0 && errno == EEXIST && replace) {
    how = Renaming::kExchange;
    result = rename(from.c_str(), to.c_str(), how);
  }
  const bool in_steps = result != 0;
  if (in_steps) {
    if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) throw_not_moved(to, errno);
    publish_in_steps(from, to, replace);
  }
  try {
    sync_folder_of(to);
  } catch (...) {
    // The file that was replaced may not be deleted before it is known to be so on the device.
    if (!in_steps) rename(to.c_str(), from.c_str(), how);
    throw;
  }
}

}  // namespace gz
