// Files by system call: every error carries the path, EINTR is retried, short reads and writes are
// continued. Operating-system calls live in io/ alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace gz {

// An open file descriptor. Move-only; closes in its destructor.
class File {
 public:
  // Opens for reading. Raises OsError(ENOENT, EACCES, EISDIR …).
  static File open(const std::string& path);
  // Creates a file that must not exist yet, for writing and reading back.
  static File create(const std::string& path);
  // Creates a file at `path` and removes its name at once: the space goes back when the File dies,
  // however the process ends.
  static File temporary(const std::string& path);
  // Opens or creates `path` and takes the exclusive advisory lock on it without waiting.
  // Raises OsError(EWOULDBLOCK) when somebody else holds it. Released when the File dies.
  static File lock(const std::string& path);

  // The same open file under a descriptor of its own.
  File duplicate() const;
  // The same file (not whatever its path names by now) opened for reading past the page cache;
  // nothing where the filesystem refuses that.
  std::optional<File> reopen_direct() const;

  File(File&& other) noexcept
      : fd_(std::exchange(other.fd_, kNone)), path_(std::move(other.path_)) {}
  File& operator=(File&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(path_, other.path_);
    return *this;
  }
  ~File();

  std::uint64_t size() const;
  // Reads up to `size` bytes at `offset`; fewer only at the end of the file.
  std::size_t read_at(void* to, std::size_t size, std::uint64_t offset) const;
  void write_at(const void* from, std::size_t size, std::uint64_t offset);
  // Asks the kernel to start reading, without waiting.
  void will_need(std::uint64_t offset, std::uint64_t size) const noexcept;
  // Blocks until the bytes are on the device.
  void sync();

  int fd() const noexcept { return fd_; }
  const std::string& path() const noexcept { return path_; }

 private:
  static constexpr int kNone = -1;
  File(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  int fd_ = kNone;
  std::string path_;
};

}  // namespace gz
