// A file for planned reads: past the page cache where the filesystem allows it, because rows that
// are read once for a window of batches would only push out pages that are worth keeping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "io/file.h"

namespace gz {

// Invariant: both handles are of the same file, whatever its path names by now.
// Thread safety: immutable.
class DirectFile {
 public:
  // Opens `path`; without `direct`, or where the system or the filesystem has no direct reads
  // (tmpfs, some network and overlay filesystems), every read goes through the page cache.
  static std::shared_ptr<const DirectFile> open(const std::string& path, bool direct = true);
  // A DirectFile over a file that is open already.
  static std::shared_ptr<const DirectFile> of(std::shared_ptr<const File> file, bool direct = true);

  bool direct() const noexcept { return direct_.has_value(); }
  // Reads go past the page cache if offset, size and address are multiples of this; 1 when none
  // can.
  std::uint64_t alignment() const noexcept { return alignment_; }
  bool takes_direct(std::uint64_t offset, std::size_t size, const void* to) const noexcept {
    return direct() && (offset | size | reinterpret_cast<std::uintptr_t>(to)) % alignment_ == 0;
  }

  const File& buffered() const noexcept { return *buffered_; }
  FileHandle direct_handle() const noexcept { return direct_ ? direct_->handle() : -1; }
  const std::string& path() const noexcept { return buffered_->path(); }
  std::uint64_t size() const { return buffered_->size(); }

 private:
  DirectFile(std::shared_ptr<const File> file, bool direct);

  std::shared_ptr<const File> buffered_;
  std::optional<File> direct_;
  std::uint64_t alignment_ = 1;
};

}  // namespace gz
