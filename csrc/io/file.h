// Files by system call: every error carries the path, EINTR is retried, short reads and writes are
// continued. Operating-system calls live in io/ alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace gz {

// A descriptor; on Windows a HANDLE. None is -1 there too.
using FileHandle = std::intptr_t;

// One read, which may come short: bytes, or minus an error number (EINTR among them).
std::int64_t read_some(FileHandle file, void* to, std::size_t size, std::uint64_t offset) noexcept;

// An open file. Move-only; closes in its destructor.
class File {
 public:
  // All of these take regular files alone, and wait for none: a FIFO or a device raises
  // FormatError. The functions that open for writing do not follow a symbolic link.

  // Opens for reading. Raises OsError(ENOENT, EACCES, EISDIR …).
  static File open(const std::string& path);
  // Creates a file that must not exist yet, for writing and reading back.
  static File create(const std::string& path);
  // A file without a name beside `path`, which is its name for an instant where the filesystem
  // cannot do without: the space goes back when the File dies, however the process ends.
  static File temporary(const std::string& path);
  // Opens or creates `path` and takes the exclusive advisory lock on it without waiting.
  // Raises OsError(EWOULDBLOCK) when another File holds it. Released when the File dies.
  static File lock(const std::string& path);

  // This file (not another that its path names by now) opened for reading past the page cache;
  // nothing where the filesystem refuses that.
  std::optional<File> reopen_direct() const;
  // Alignment of the reads of a file that was opened so; 0: the system says that none are direct.
  std::uint64_t direct_alignment() const;

  File(File&& other) noexcept
      : handle_(std::exchange(other.handle_, kNone)), path_(std::move(other.path_)) {}
  File& operator=(File&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(path_, other.path_);
    return *this;
  }
  ~File();

  // Whether path() still names this file, and not another one or none.
  bool is_in_place() const;
  std::uint64_t size() const;
  // Reads up to `size` bytes at `offset`; fewer only at the end of the file.
  std::size_t read_at(void* to, std::size_t size, std::uint64_t offset) const;
  void write_at(const void* from, std::size_t size, std::uint64_t offset);
  // Asks the kernel to start reading, without waiting.
  void will_need(std::uint64_t offset, std::uint64_t size) const noexcept;
  // Cuts the file or lengthens it by a hole, which reads as zeros and takes no space.
  void resize(std::uint64_t size);
  // Blocks until the bytes are on the device.
  void sync();

  FileHandle handle() const noexcept { return handle_; }
  const std::string& path() const noexcept { return path_; }

 private:
  static constexpr FileHandle kNone = -1;

  File(FileHandle handle, std::string path) : handle_(handle), path_(std::move(path)) {}

  FileHandle handle_ = kNone;
  std::string path_;
};

}  // namespace gz
