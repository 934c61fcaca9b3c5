#include "io/fault_guard.h"

#include <ucontext.h>

#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <mutex>

#include "base/errors.h"
#include "io/mapping.h"

namespace gz::detail {
namespace {

struct Frame {
  sigjmp_buf landing;
  Frame* outer;
  void* volatile address;
  sigset_t mask;
};

thread_local Frame* innermost = nullptr;
struct sigaction previous;

void on_bus_error(int signal, siginfo_t* info, void* context) {
  if (Frame* const frame = innermost) {
    frame->address = info->si_addr;
    frame->mask = static_cast<const ucontext_t*>(context)->uc_sigmask;
    siglongjmp(frame->landing, 1);
  }
  // Not ours: whoever handled SIGBUS before decides, and without one the process dies as it must.
  if ((previous.sa_flags & SA_SIGINFO) != 0 && previous.sa_sigaction != nullptr) {
    previous.sa_sigaction(signal, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
  } else {
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
}

void install_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    if (::sigaction(SIGBUS, &action, &previous) != 0) throw OsError("sigaction", "SIGBUS", errno);
  });
}

}  // namespace

void run_guarded(void (*call)(void*), void* object) {
  install_once();
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
  const MappedPlace place = find_mapped(frame.address);
  throw OsError("the file was truncated or its disk failed: cannot read offset " +
                    std::to_string(place.offset) + " of",
                place.path.empty() ? "a mapped file" : place.path, EIO);
}

}  // namespace gz::detail
