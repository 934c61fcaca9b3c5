#include "io/mapping.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <utility>

#include "base/errors.h"
#include "io/fault_guard.h"

namespace gz {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<const std::byte*, const Mapping*> by_address;
};

Registry& registry() {
  static Registry* const live = new Registry;  // outlives mappings freed at interpreter exit
  return *live;
}

// The live mapping that has this byte, or null. REQUIRES the registry's lock.
const Mapping* find(const std::byte* at) {
  const auto next = registry().by_address.upper_bound(at);
  if (next == registry().by_address.begin()) return nullptr;
  const Mapping* const mapping = std::prev(next)->second;
  return at < mapping->data() + mapping->size() ? mapping : nullptr;
}

}  // namespace

std::shared_ptr<const Mapping> Mapping::map(const File& file, std::uint64_t size, MapMode mode) {
  bool writable = mode == MapMode::kCopyOnWrite;
  std::byte* at = map_file(file, size, writable);
  // The system may have to promise memory for every page of the file, and has not that much.
  if (at == nullptr && writable && errno == ENOMEM) at = map_file(file, size, writable = false);
  if (at == nullptr) throw OsError("cannot map", file.path(), errno);
  return std::shared_ptr<const Mapping>(new Mapping(at, size, file.path(), writable));
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
  unmap_file(data_, size_);
}

MappedPlace find_mapped(const void* address) {
  const auto* const at = static_cast<const std::byte*>(address);
  const std::lock_guard lock(registry().mutex);
  const Mapping* const mapping = find(at);
  if (mapping == nullptr) return {};
  return {mapping->path(), static_cast<std::uint64_t>(at - mapping->data())};
}

void will_need(const void* address, std::uint64_t size) noexcept {
  const auto* const at = static_cast<const std::byte*>(address);
  const std::lock_guard lock(registry().mutex);
  const Mapping* const mapping = find(at);
  if (mapping == nullptr) return;
  const auto left = static_cast<std::uint64_t>(mapping->data() + mapping->size() - at);
  read_ahead(at, std::min(size, left));
}

void detail::throw_unreadable(const void* address) {
  const MappedPlace place = find_mapped(address);
  throw OsError(text_of("the file was truncated or its disk failed: cannot read offset ",
                        place.offset, " of"),
                place.path.empty() ? "a mapped file" : place.path, EIO);
}

}  // namespace gz
