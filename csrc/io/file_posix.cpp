#include "io/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/errors.h"
#include "io/posix.h"

namespace gz {
namespace {

// Repeats a call as long as a signal interrupts it; returns what it does.
template <class Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace

int posix::open(const std::string& path, int flags) {
  const int fd = uninterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0666); });
  if (fd < 0) throw OsError("cannot open", path, errno);
  return fd;
}

namespace {

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
    fd = posix::open(path, flags | O_NONBLOCK);
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
  return File(posix::open(path, O_RDWR | O_CREAT | O_EXCL), path);
}

File File::temporary(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  try {
    if (const int fd = posix::open_unnamed(folder); fd >= 0) return File(fd, path);
  } catch (const OsError& refused) {
    throw OsError(refused.operation(), path, refused.code());
  }
  File file = create(path);
  if (::unlink(path.c_str()) != 0) throw OsError("cannot remove", path, errno);
  return file;
}

File File::lock(const std::string& path) {
  File file(open_regular(path, O_RDWR | O_CREAT | O_NOFOLLOW), path);
  const auto take = [&] { return ::flock(posix::descriptor(file), LOCK_EX | LOCK_NB); };
  if (uninterrupted(take) != 0) throw OsError("cannot lock", path, errno);
  return file;
}

std::optional<File> File::reopen_direct() const {
  try {
    const int fd = posix::reopen_direct(posix::descriptor(*this), path_);
    if (fd >= 0) return File(fd, path_);
  } catch (const OsError& refused) {
    throw OsError(refused.operation(), path_, refused.code());
  }
  return std::nullopt;
}

std::uint64_t File::direct_alignment() const {
  return posix::direct_alignment(posix::descriptor(*this));
}

File::~File() {
  if (handle_ != kNone) ::close(posix::descriptor(*this));
}

bool File::is_in_place() const {
  struct stat named;
  if (::lstat(path_.c_str(), &named) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return false;
    throw OsError("cannot stat", path_, errno);
  }
  const struct stat own = status_of(posix::descriptor(*this), path_);
  return own.st_dev == named.st_dev && own.st_ino == named.st_ino;
}

std::uint64_t File::size() const {
  return static_cast<std::uint64_t>(status_of(posix::descriptor(*this), path_).st_size);
}

std::int64_t read_some(FileHandle file, void* to, std::size_t size, std::uint64_t offset) noexcept {
  const ssize_t n = ::pread(static_cast<int>(file), to, size, static_cast<off_t>(offset));
  return n < 0 ? -errno : n;
}

void File::write_at(const void* from, std::size_t size, std::uint64_t offset) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t n = uninterrupted([&] {
      return ::pwrite(posix::descriptor(*this), static_cast<const char*>(from) + done, size - done,
                      static_cast<off_t>(offset + done));
    });
    if (n < 0) throw OsError("cannot write", path_, errno);
    done += static_cast<std::size_t>(n);
  }
}

void File::will_need(std::uint64_t offset, std::uint64_t size) const noexcept {
  if (size == 0) return;  // to Linux 0 is everything up to the end
  posix::will_need(posix::descriptor(*this), offset, size);
}

void File::resize(std::uint64_t size) {
  const auto cut = [&] { return ::ftruncate(posix::descriptor(*this), static_cast<off_t>(size)); };
  if (uninterrupted(cut) != 0) throw OsError("cannot resize", path_, errno);
}

void File::sync() {
  if (posix::sync(posix::descriptor(*this)) != 0) throw OsError("cannot sync", path_, errno);
}

void File::sync_data() {
  if (posix::sync_data(posix::descriptor(*this)) != 0) throw OsError("cannot sync", path_, errno);
}

}  // namespace gz
