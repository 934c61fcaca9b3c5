// What a consumer has of a batch, until it frees it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

namespace gz {

// Who hands batches out and wants to know what is still in use of them.
class Lender {
 public:
  virtual ~Lender() = default;
  // Called by whatever thread frees memory.
  virtual void returned(std::int64_t bytes) noexcept = 0;
};

// So many bytes, given back to their lender when it dies.
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
  ~Loan() {
    if (lender_ != nullptr && bytes_ > 0) lender_->returned(bytes_);
  }

  // Of the whole, what one array takes: from then on a loan of its own.
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
