// The process as a whole: its number, forks, signals; and which system it runs on.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>

namespace gz {

// "linux", "macos", "windows", or "posix", which does without all that is not in every POSIX
// system.
const char* system_name() noexcept;

std::int64_t process_id() noexcept;

// From now on every fork of this process calls `before`, and then one of the others on either side
// of it; null: nothing. Functions that were added last are called first before a fork, and last
// after it.
void at_fork(void (*before)(), void (*in_parent)(), void (*in_child)());

// A thread that leaves signals to the program's own threads: all are blocked in it but its own
// faults. Raises std::system_error.
std::thread start_thread(std::function<void()> run);

}  // namespace gz
