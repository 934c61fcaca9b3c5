#include "io/direct_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace gz {
namespace {

// The largest alignment any block device asks for; where the kernel cannot say, it is always right.
constexpr std::uint64_t kSafeAlignment = 4096;

// Alignment of direct reads; 0 when the kernel says that there are none on this file.
std::uint64_t direct_alignment([[maybe_unused]] const File& file) {
#ifdef STATX_DIOALIGN
  struct statx status;
  if (::statx(file.fd(), "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 &&
      (status.stx_mask & STATX_DIOALIGN) != 0) {
    return std::bit_ceil(
        std::uint64_t{std::max(status.stx_dio_mem_align, status.stx_dio_offset_align)});
  }
#endif
  return kSafeAlignment;
}

}  // namespace

std::shared_ptr<const DirectFile> DirectFile::open(const std::string& path, bool direct) {
  return std::shared_ptr<const DirectFile>(new DirectFile(File::open(path), direct));
}

std::shared_ptr<const DirectFile> DirectFile::of(const File& file, bool direct) {
  return std::shared_ptr<const DirectFile>(new DirectFile(file.duplicate(), direct));
}

DirectFile::DirectFile(File file, bool direct) : buffered_(std::move(file)) {
  if (!direct) return;
  direct_ = buffered_.reopen_direct();
  if (!direct_) return;
  // bit_ceil(0) is 1: the kernel knows the file, and that its reads are never direct.
  alignment_ = direct_alignment(*direct_);
  if (alignment_ == 1) direct_.reset();
}

}  // namespace gz
