#include "io/process.h"

#include <pthread.h>
#include <signal.h>

#include <initializer_list>

namespace gz {

void at_fork(void (*before)(), void (*in_parent)(), void (*in_child)()) {
  ::pthread_atfork(before, in_parent, in_child);
}

void block_signals() noexcept {
  sigset_t all;
  ::sigfillset(&all);
  for (const int fault : {SIGBUS, SIGSEGV, SIGFPE, SIGILL}) ::sigdelset(&all, fault);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

}  // namespace gz
