#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "base/errors.h"
#include "io/mapping.h"
#include "io/posix.h"

namespace gz {
namespace {

// Files above this are advised as randomly read: the kernel's read-ahead (up to megabytes per
// fault) would read a large column whole for a handful of rows. Smaller ones profit from it.
constexpr std::uint64_t kRandomAdviceBytes = 64ULL << 20;

}  // namespace

std::shared_ptr<const Mapping> Mapping::map(const File& file, std::uint64_t size, MapMode mode) {
  bool writable = mode == MapMode::kCopyOnWrite;
  void* at = MAP_FAILED;
  if (writable) {
    // Without MAP_NORESERVE the kernel would have to promise RAM for every page of the file.
    at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE,
                posix::descriptor(file), 0);
    if (at == MAP_FAILED && errno != ENOMEM) throw OsError("cannot map", file.path(), errno);
  }
  if (at == MAP_FAILED) {
    writable = false;
    at = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, posix::descriptor(file), 0);
    if (at == MAP_FAILED) throw OsError("cannot map", file.path(), errno);
  }
  if (size > kRandomAdviceBytes) ::madvise(at, size, MADV_RANDOM);
  return std::shared_ptr<const Mapping>(
      new Mapping(static_cast<std::byte*>(at), size, file.path(), writable));
}

void unmap_file(std::byte* data, std::uint64_t size) noexcept { ::munmap(data, size); }

void read_ahead(const std::byte* data, std::uint64_t size) noexcept {
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t before = reinterpret_cast<std::uintptr_t>(data) % page;
  ::madvise(const_cast<std::byte*>(data) - before, size + before, MADV_WILLNEED);
}

void Mapping::forget_pages() const noexcept { ::madvise(data_, size_, MADV_DONTNEED); }

}  // namespace gz
