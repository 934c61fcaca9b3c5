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
  return uninterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0666); });
}

namespace {

int descriptor(const File& file) { return posix::descriptor(file); }

struct stat status_of(const File& file) {
  struct stat status;
  if (::fstat(descriptor(file), &status) != 0) throw OsError("cannot stat", file.path(), errno);
  return status;
}

// O_NONBLOCK: opening a FIFO does not wait for its other end. To a regular file it means nothing.
int open_file(const std::string& path, int flags) {
  const int fd = posix::open(path, flags | O_NONBLOCK);
  if (fd >= 0) return fd;
  const char* special = nullptr;
  if (errno == ELOOP && (flags & O_NOFOLLOW) != 0) special = "a symbolic link";
  if (errno == ENXIO) special = "a socket or a device";
  if (special == nullptr) throw OsError("cannot open", path, errno);
  throw FormatError(path, "file", special, "a regular file");
}

File checked(File file) {
  const mode_t mode = status_of(file).st_mode;
  // open(2) succeeds on a directory; every read would fail later with a poorer message.
  if (S_ISDIR(mode)) throw OsError("cannot read", file.path(), EISDIR);
  if (S_ISREG(mode)) return file;
  throw FormatError(file.path(), "file", S_ISFIFO(mode) ? "a FIFO" : "a device", "a regular file");
}

}  // namespace

File File::open(const std::string& path) { return checked(File(open_file(path, O_RDONLY), path)); }

File File::create(const std::string& path) {
  return File(open_file(path, O_RDWR | O_CREAT | O_EXCL), path);
}

File File::temporary(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int fd = posix::open_unnamed(folder);
  if (fd >= 0) return File(fd, path);
  if (errno != 0) throw OsError("cannot open", path, errno);
  File file = create(path);
  if (::unlink(path.c_str()) != 0) throw OsError("cannot remove", path, errno);
  return file;
}

File File::lock(const std::string& path) {
  File file = checked(File(open_file(path, O_RDWR | O_CREAT | O_NOFOLLOW), path));
  const auto take = [&] { return ::flock(descriptor(file), LOCK_EX | LOCK_NB); };
  if (uninterrupted(take) != 0) throw OsError("cannot lock", path, errno);
  return file;
}

std::optional<File> File::reopen_direct() const {
  const int fd = posix::reopen_direct(descriptor(*this), path_);
  if (fd >= 0) return File(fd, path_);
  if (errno != 0) throw OsError("cannot open", path_, errno);
  return std::nullopt;
}

std::uint64_t File::direct_alignment() const { return posix::direct_alignment(descriptor(*this)); }

File::~File() {
  if (handle_ != kNone) ::close(descriptor(*this));
}

bool File::is_in_place() const {
  struct stat named;
  if (::lstat(path_.c_str(), &named) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return false;
    throw OsError("cannot stat", path_, errno);
  }
  const struct stat own = status_of(*this);
  return own.st_dev == named.st_dev && own.st_ino == named.st_ino;
}

std::uint64_t File::size() const { return static_cast<std::uint64_t>(status_of(*this).st_size); }

std::int64_t read_some(FileHandle file, void* to, std::size_t size, std::uint64_t offset) noexcept {
  const ssize_t n = ::pread(static_cast<int>(file), to, size, static_cast<off_t>(offset));
  return n < 0 ? -errno : n;
}

void File::write_at(const void* from, std::size_t size, std::uint64_t offset) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t n = uninterrupted([&] {
      return ::pwrite(descriptor(*this), static_cast<const char*>(from) + done, size - done,
                      static_cast<off_t>(offset + done));
    });
    if (n < 0) throw OsError("cannot write", path_, errno);
    done += static_cast<std::size_t>(n);
  }
}

void File::will_need(std::uint64_t offset, std::uint64_t size) const noexcept {
  if (size == 0) return;  // to Linux 0 is everything up to the end
  posix::will_need(descriptor(*this), offset, size);
}

void File::resize(std::uint64_t size) {
  const auto cut = [&] { return ::ftruncate(descriptor(*this), static_cast<off_t>(size)); };
  if (uninterrupted(cut) != 0) throw OsError("cannot resize", path_, errno);
}

void File::sync() {
  if (posix::sync(descriptor(*this)) != 0) throw OsError("cannot sync", path_, errno);
}

}  // namespace gz
