#include <sys/mman.h>
#include <unistd.h>

#include "io/mapping.h"
#include "io/posix.h"

namespace gz {
namespace {

// Files above this are advised as randomly read: the kernel's read-ahead (up to megabytes per
// fault) would read a large column whole for a handful of rows. Smaller ones profit from it.
constexpr std::uint64_t kRandomAdviceBytes = 64ULL << 20;

}  // namespace

std::byte* map_file(const File& file, std::uint64_t size, bool writable) noexcept {
  const int access = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  // Without MAP_NORESERVE the kernel would have to promise RAM for every page of the file.
  const int flags = writable ? MAP_PRIVATE | MAP_NORESERVE : MAP_SHARED;
  void* const at = ::mmap(nullptr, size, access, flags, posix::descriptor(file), 0);
  if (at == MAP_FAILED) return nullptr;
  if (size > kRandomAdviceBytes) ::madvise(at, size, MADV_RANDOM);
  return static_cast<std::byte*>(at);
}

void unmap_file(std::byte* data, std::uint64_t size) noexcept { ::munmap(data, size); }

void read_ahead(const std::byte* data, std::uint64_t size) noexcept {
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t before = reinterpret_cast<std::uintptr_t>(data) % page;
  ::madvise(const_cast<std::byte*>(data) - before, size + before, MADV_WILLNEED);
}

void Mapping::forget_pages() const noexcept { ::madvise(data_, size_, MADV_DONTNEED); }

}  // namespace gz
