#include "io/read_buffer.h"

#include "io/pages.h"

namespace gz {
namespace {

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + ReadBuffer::kAlignment - 1) / ReadBuffer::kAlignment * ReadBuffer::kAlignment;
}

}  // namespace

ReadBuffer::ReadBuffer(std::size_t bytes) {
  const std::size_t size = whole_pages(bytes);
  memory_ = {map_read_buffer(size), size};
}

ReadBuffer::~ReadBuffer() {
  // A child may not have these pages, and something else at their addresses.
  if (!origin_.forked()) unmap_pages(memory_.data(), memory_.size());
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

}  // namespace gz
