// Reading mapped memory without dying: when a file is truncated (or its disk fails) under a map,
// the kernel sends SIGBUS. Inside guarded() that becomes an OsError with the file and offset.
#pragma once

#include <memory>
#include <type_traits>

namespace gz {

namespace detail {
void run_guarded(void (*call)(void*), void* object);
// The error of a mapped page that could not be read.
[[noreturn]] void throw_unreadable(const void* address);
}  // namespace detail

// Makes sure that SIGBUS comes to guarded(): others install handlers of theirs, as torch does in
// each of its workers. A system call: for the beginning of a batch or a walk.
void renew_guard();

// Runs body() and turns a SIGBUS raised by this thread inside it into OsError(EIO).
// REQUIRES: the body is left by a jump then, so it must own nothing (no locks, no containers that
// grow, no allocations): loops over raw memory only. Costs a few nanoseconds; may be nested.
template <class Body>
void guarded(Body&& body) {
  detail::run_guarded(
      [](void* object) { (*static_cast<std::remove_reference_t<Body>*>(object))(); },
      const_cast<void*>(static_cast<const void*>(std::addressof(body))));
}

}  // namespace gz
