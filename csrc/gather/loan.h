// Bytes of memory that are lent: of a batch that its consumer has not freed, of a window of rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

namespace gz {

// Hands memory out, and is told when it is freed.
class Lender {
 public:
  virtual ~Lender() = default;
  // Called by whatever thread frees memory.
  virtual void returned(std::int64_t bytes) noexcept = 0;
};

// A number of bytes, given back to their lender when the loan dies.
class Loan {
 public:
  Loan() = default;
  Loan(std::shared_ptr<Lender> lender, std::int64_t bytes)
      : lender_(std::move(lender)), bytes_(bytes) {}
  Loan(Loan&& other) noexcept
      : lender_(std::move(other.lender_)), bytes_(std::exchange(other.bytes_, 0)) {}
  Loan& operator=(Loan&& other) noexcept {
    std::swap(lender_, other.lender_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Loan() { shrink(0); }

  std::int64_t bytes() const noexcept { return bytes_; }

  // Gives back all but these bytes, if they are fewer.
  void shrink(std::int64_t bytes) noexcept {
    if (bytes >= bytes_) return;
    if (lender_ != nullptr) lender_->returned(bytes_ - bytes);
    bytes_ = bytes;
  }

  // Splits off the bytes of one array, which are a loan of their own from then on.
  Loan split(std::int64_t bytes) {
    bytes = std::min(bytes, bytes_);
    Loan part(lender_, bytes);
    bytes_ -= bytes;
    return part;
  }

 private:
  std::shared_ptr<Lender> lender_;
  std::int64_t bytes_ = 0;
};

}  // namespace gz
