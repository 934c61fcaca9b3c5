#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <initializer_list>
#include <utility>

#include "io/process.h"

namespace gz {
namespace {

// A thread begins with the mask of the one that starts it.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGBUS, SIGSEGV, SIGFPE, SIGILL}) sigdelset(&all, fault);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

std::int64_t process_id() noexcept { return ::getpid(); }

void at_fork(void (*before)(), void (*in_parent)(), void (*in_child)()) {
  ::pthread_atfork(before, in_parent, in_child);
}

std::thread start_thread(std::function<void()> run) {
  const SignalsBlocked blocked;
  return std::thread(std::move(run));
}

}  // namespace gz
