// Which process made an object: a forked child inherits rings, threads and buffers that are not its
// own and must be left alone.
#pragma once

#include <unistd.h>

namespace gz {

class Origin {
 public:
  // True in a child of the process that made this object.
  bool forked() const noexcept { return ::getpid() != process_; }

 private:
  pid_t process_ = ::getpid();
};

}  // namespace gz
