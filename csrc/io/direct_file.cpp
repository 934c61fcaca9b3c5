#include "io/direct_file.h"

#include <utility>

namespace gz {

std::shared_ptr<const DirectFile> DirectFile::open(const std::string& path, bool direct) {
  return of(std::make_shared<const File>(File::open(path)), direct);
}

std::shared_ptr<const DirectFile> DirectFile::of(std::shared_ptr<const File> file, bool direct) {
  return std::shared_ptr<const DirectFile>(new DirectFile(std::move(file), direct));
}

DirectFile::DirectFile(std::shared_ptr<const File> file, bool direct) : buffered_(std::move(file)) {
  if (!direct) return;
  direct_ = buffered_->reopen_direct();
  if (!direct_) return;
  const std::uint64_t alignment = direct_->direct_alignment();
  if (alignment > 0) {
    alignment_ = alignment;
  } else {
    direct_.reset();
  }
}

}  // namespace gz
