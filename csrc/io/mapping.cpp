#include "io/mapping.h"

#include <sys/mman.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <utility>

#include "base/errors.h"

namespace gz {
namespace {

// Files above this are advised as randomly read: the kernel's read-ahead (up to megabytes per
// fault) would read a large column whole for a handful of rows. Smaller ones profit from it.
constexpr std::uint64_t kRandomAdviceBytes = 64ULL << 20;

struct Registry {
  std::mutex mutex;
  std::map<const std::byte*, const Mapping*> by_address;
};

Registry& registry() {
  static Registry* const live = new Registry;  // outlives mappings freed at interpreter exit
  return *live;
}

}  // namespace

std::shared_ptr<const Mapping> Mapping::map(const File& file, std::uint64_t size, MapMode mode) {
  bool writable = mode == MapMode::kCopyOnWrite;
  void* at = MAP_FAILED;
  if (writable) {
    // Without MAP_NORESERVE the kernel would have to promise RAM for every page of the file.
    at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.fd(), 0);
    if (at == MAP_FAILED && errno != ENOMEM) throw OsError("cannot map", file.path(), errno);
  }
  if (at == MAP_FAILED) {
    writable = false;
    at = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd(), 0);
    if (at == MAP_FAILED) throw OsError("cannot map", file.path(), errno);
  }
  if (size > kRandomAdviceBytes) ::madvise(at, size, MADV_RANDOM);
  return std::shared_ptr<const Mapping>(
      new Mapping(static_cast<std::byte*>(at), size, file.path(), writable));
}

Mapping::Mapping(std::byte* data, std::uint64_t size, std::string path, bool writable)
    : data_(data), size_(size), path_(std::move(path)), writable_(writable) {
  const std::lock_guard lock(registry().mutex);
  registry().by_address.emplace(data_, this);
}

Mapping::~Mapping() {
  {
    const std::lock_guard lock(registry().mutex);
    registry().by_address.erase(data_);
  }
  ::munmap(data_, size_);
}

void Mapping::forget_pages() const noexcept { ::madvise(data_, size_, MADV_DONTNEED); }

MappedPlace find_mapped(const void* address) {
  const auto* const at = static_cast<const std::byte*>(address);
  const std::lock_guard lock(registry().mutex);
  auto next = registry().by_address.upper_bound(at);
  if (next == registry().by_address.begin()) return {};
  const Mapping& mapping = *std::prev(next)->second;
  const auto offset = static_cast<std::uint64_t>(at - mapping.data());
  if (offset >= mapping.size()) return {};
  return {mapping.path(), offset};
}

}  // namespace gz
