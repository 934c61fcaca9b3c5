#include "io/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/errors.h"

namespace gz {
namespace {

int open_retrying(const std::string& path, int flags) {
  int fd;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) throw OsError("cannot open", path, errno);
  return fd;
}

struct stat status_of(int fd, const std::string& path) {
  struct stat status;
  if (::fstat(fd, &status) != 0) throw OsError("cannot stat", path, errno);
  return status;
}

[[noreturn]] void throw_not_regular(const std::string& path, const char* found) {
  throw FormatError(path, "file", found, "a regular file");
}

// O_NONBLOCK: opening a FIFO does not wait for its other end. To a regular file it means nothing.
int open_regular(const std::string& path, int flags) {
  int fd;
  try {
    fd = open_retrying(path, flags | O_NONBLOCK);
  } catch (const OsError& refused) {
    if (refused.code() == ELOOP && (flags & O_NOFOLLOW) != 0) {
      throw_not_regular(path, "a symbolic link");
    }
    if (refused.code() == ENXIO) throw_not_regular(path, "a socket or a device");
    throw;
  }
  struct stat status;
  const int code = ::fstat(fd, &status) == 0 ? 0 : errno;
  if (code == 0 && S_ISREG(status.st_mode)) return fd;
  ::close(fd);
  if (code != 0) throw OsError("cannot stat", path, code);
  // open(2) succeeds on a directory; every read would fail later with a poorer message.
  if (S_ISDIR(status.st_mode)) throw OsError("cannot read", path, EISDIR);
  throw_not_regular(path, S_ISFIFO(status.st_mode) ? "a FIFO" : "a device");
}

}  // namespace

File File::open(const std::string& path) { return File(open_regular(path, O_RDONLY), path); }

File File::create(const std::string& path) {
  return File(open_retrying(path, O_RDWR | O_CREAT | O_EXCL), path);
}

File File::temporary(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  try {
    return File(open_retrying(folder, O_RDWR | O_TMPFILE), path);
  } catch (const OsError& refused) {
    // Kernels' errors on filesystems that have only files with names (NFS).
    bool knows_names_only = false;
    for (const int code : {EOPNOTSUPP, EISDIR, EINVAL}) knows_names_only |= refused.code() == code;
    if (!knows_names_only) throw OsError(refused.operation(), path, refused.code());
  }
  File file = create(path);
  if (::unlink(path.c_str()) != 0) throw OsError("cannot remove", path, errno);
  return file;
}

File File::lock(const std::string& path) {
  File file(open_regular(path, O_RDWR | O_CREAT | O_NOFOLLOW), path);
  int result;
  do {
    result = ::flock(file.fd_, LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  if (result != 0) throw OsError("cannot lock", path, errno);
  return file;
}

File File::duplicate() const {
  const int fd = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) throw OsError("cannot duplicate the descriptor of", path_, errno);
  return File(fd, path_);
}

std::optional<File> File::reopen_direct() const {
  try {
    return File(open_retrying("/proc/self/fd/" + std::to_string(fd_), O_RDONLY | O_DIRECT), path_);
  } catch (const OsError& refused) {
    // EINVAL: the filesystem has no direct reads. ENOENT: there is no /proc; the path is no
    // substitute, as it may name another file by now. The others: the file was opened with rights
    // that the process has given up since.
    for (const int code : {EINVAL, ENOENT, EACCES, EPERM}) {
      if (refused.code() == code) return std::nullopt;
    }
    throw OsError(refused.operation(), path_, refused.code());
  }
}

File::~File() {
  if (fd_ != kNone) ::close(fd_);
}

bool File::is_in_place() const {
  struct stat named;
  if (::lstat(path_.c_str(), &named) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return false;
    throw OsError("cannot stat", path_, errno);
  }
  const struct stat own = status_of(fd_, path_);
  return own.st_dev == named.st_dev && own.st_ino == named.st_ino;
}

std::uint64_t File::size() const {
  return static_cast<std::uint64_t>(status_of(fd_, path_).st_size);
}

std::size_t File::read_at(void* to, std::size_t size, std::uint64_t offset) const {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t n =
        ::pread(fd_, static_cast<char*>(to) + done, size - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw OsError("cannot read", path_, errno);
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

void File::write_at(const void* from, std::size_t size, std::uint64_t offset) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t n = ::pwrite(fd_, static_cast<const char*>(from) + done, size - done,
                               static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw OsError("cannot write", path_, errno);
    done += static_cast<std::size_t>(n);
  }
}

void File::will_need(std::uint64_t offset, std::uint64_t size) const noexcept {
  if (size == 0) return;  // to the kernel 0 is everything up to the end
  ::posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(size), POSIX_FADV_WILLNEED);
}

void File::resize(std::uint64_t size) {
  int result;
  do {
    result = ::ftruncate(fd_, static_cast<off_t>(size));
  } while (result != 0 && errno == EINTR);
  if (result != 0) throw OsError("cannot resize", path_, errno);
}

void File::sync() {
  if (::fsync(fd_) != 0) throw OsError("cannot sync", path_, errno);
}

void File::sync_data() {
  if (::fdatasync(fd_) != 0) throw OsError("cannot sync", path_, errno);
}

}  // namespace gz
