// XXH64, the checksum of every block and header of a store, as its public specification defines it
// (Yann Collet, "xxHash fast digest algorithm"). The engine computes it while it writes; the tests
// hold it against the xxhash library.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gz {

// The XXH64 digest, seed 0, of `size` bytes at `data`.
std::uint64_t xxh64(const void* data, std::size_t size) noexcept;

}  // namespace gz
