#include "io/fault_guard.h"

#include <signal.h>

#include <atomic>
#include <cerrno>
#include <csetjmp>

#include "base/errors.h"

namespace gz {
namespace {

struct Frame {
  sigjmp_buf landing;
  Frame* outer;
  void* volatile address;
  sigset_t mask;
};

thread_local Frame* innermost = nullptr;
thread_local bool handed_on = false;
// The handler that ours replaced last; never freed, as a handler may be reading it.
std::atomic<const struct sigaction*> previous{nullptr};

void hand_on(int signal, siginfo_t* info, void* context) {
  const struct sigaction* const before = previous.load();
  // A handler that was here before may send the signal again, for the one before itself: us. It is
  // blocked as long as this runs, and comes when that has returned.
  const bool comes_back = info->si_code <= 0 && handed_on;
  const bool takes_info = (before->sa_flags & SA_SIGINFO) != 0;
  const bool is_default = before->sa_handler == SIG_DFL || before->sa_handler == SIG_IGN;
  if (comes_back || (!takes_info && is_default)) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);
    return;
  }
  handed_on = true;
  if (takes_info) {
    before->sa_sigaction(signal, info, context);
  } else {
    before->sa_handler(signal);
  }
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  if (Frame* const frame = innermost) {
    frame->address = info->si_addr;
    frame->mask = static_cast<const ucontext_t*>(context)->uc_sigmask;
    siglongjmp(frame->landing, 1);
  }
  // Not ours: whoever handled SIGBUS before decides, and without one the process dies as it must.
  hand_on(signal, info, context);
}

}  // namespace

void renew_guard() {
  struct sigaction found = {};
  if (::sigaction(SIGBUS, nullptr, &found) != 0) throw OsError("sigaction", "SIGBUS", errno);
  if ((found.sa_flags & SA_SIGINFO) != 0 && found.sa_sigaction == on_bus_error) return;
  previous.store(new struct sigaction(found));
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  if (::sigaction(SIGBUS, &action, nullptr) != 0) throw OsError("sigaction", "SIGBUS", errno);
}

namespace detail {

void run_guarded(void (*call)(void*), void* object) {
  [[maybe_unused]] static const bool installed = (renew_guard(), true);
  Frame frame;
  frame.outer = innermost;
  frame.address = nullptr;
  if (sigsetjmp(frame.landing, 0) == 0) {
    innermost = &frame;
    try {
      call(object);
    } catch (...) {
      innermost = frame.outer;
      throw;
    }
    innermost = frame.outer;
    return;
  }
  innermost = frame.outer;
  // The jump left the handler with the signals blocked that it ran under; sigsetjmp could restore
  // them too, but at the price of a system call each time nothing happens.
  ::pthread_sigmask(SIG_SETMASK, &frame.mask, nullptr);
  throw_unreadable(frame.address);
}

}  // namespace detail

}  // namespace gz
