#include "io/pages.h"

#include <algorithm>

namespace gz {

std::shared_ptr<std::byte> make_pages(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  const std::size_t size = (std::max<std::size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
  return {static_cast<std::byte*>(map_pages(size)),
          [size](std::byte* at) { unmap_pages(at, size); }};
}

}  // namespace gz
