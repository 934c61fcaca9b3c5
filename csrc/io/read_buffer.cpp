#include "io/read_buffer.h"

#include <sys/mman.h>

#include <cerrno>

#include "base/errors.h"

namespace gz {
namespace {

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + ReadBuffer::kAlignment - 1) / ReadBuffer::kAlignment * ReadBuffer::kAlignment;
}

}  // namespace

ReadBuffer::ReadBuffer(std::size_t bytes) {
  const std::size_t size = whole_pages(bytes);
  void* const at =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw OsError("cannot allocate", "read buffers", errno);
  memory_ = {static_cast<std::byte*>(at), size};
  // The kernel writes here behind the program's back: no business of a child's copy-on-write.
  ::madvise(at, size, MADV_DONTFORK);
}

ReadBuffer::~ReadBuffer() {
  // A child never had these pages; the addresses may hold something else there.
  if (!origin_.forked()) ::munmap(memory_.data(), memory_.size());
}

ReadBuffer::Piece ReadBuffer::take(std::size_t size) {
  size = whole_pages(size);
  std::size_t begin = 0;
  if (taken_.empty()) {
    if (size > memory_.size()) return {};
  } else {
    // Pieces in use reach from the oldest's begin to end_, perhaps around the end of the memory.
    const std::size_t oldest = taken_.front().begin;
    const bool around = end_ <= oldest;
    if (size <= (around ? oldest : memory_.size()) - end_) {
      begin = end_;
    } else if (around || size > oldest) {
      return {};
    }
  }
  end_ = begin + size;
  taken_.push_back({begin, false});
  return {memory_.data() + begin, first_ticket_ + taken_.size() - 1};
}

void ReadBuffer::give_back(std::uint64_t ticket) {
  taken_[ticket - first_ticket_].returned = true;
  while (!taken_.empty() && taken_.front().returned) {
    taken_.pop_front();
    ++first_ticket_;
  }
}

void ReadBuffer::clear() noexcept {
  first_ticket_ += taken_.size();
  taken_.clear();
}

}  // namespace gz
