#include "io/fault_guard.h"

#include <windows.h>

namespace gz {
namespace {

struct Frame {
  CONTEXT landing;
  Frame* outer;
  void* address;
  volatile bool landed;
};

thread_local Frame* innermost = nullptr;

// A page of a mapped file that cannot be read: the disk failed, or the network.
LONG CALLBACK on_fault(EXCEPTION_POINTERS* fault) {
  Frame* const frame = innermost;
  const EXCEPTION_RECORD& record = *fault->ExceptionRecord;
  if (record.ExceptionCode != EXCEPTION_IN_PAGE_ERROR || frame == nullptr) {
    return EXCEPTION_CONTINUE_SEARCH;
  }
  frame->address = reinterpret_cast<void*>(record.ExceptionInformation[1]);
  frame->landed = true;
  *fault->ContextRecord = frame->landing;
  return EXCEPTION_CONTINUE_EXECUTION;
}

}  // namespace

// Handlers of others are asked later: there is nothing to renew.
void renew_guard() {}

namespace detail {

void run_guarded(void (*call)(void*), void* object) {
  [[maybe_unused]] static void* const installed = ::AddVectoredExceptionHandler(1, on_fault);
  Frame frame;
  frame.outer = innermost;
  frame.address = nullptr;
  frame.landed = false;
  ::RtlCaptureContext(&frame.landing);  // a fault goes on from here, with `landed`
  if (!frame.landed) {
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
  throw_unreadable(frame.address);
}

}  // namespace detail

}  // namespace gz
