// Which process made an object: a forked child inherits rings, threads and buffers that are not its
// own and must be left alone.
#pragma once

#include <cstdint>

#include "io/process.h"

namespace gz {

class Origin {
 public:
  // True in a child of the process that made this object.
  bool forked() const noexcept { return process_id() != process_; }

 private:
  std::int64_t process_ = process_id();
};

}  // namespace gz
