// Functions that may be compiled for more than the baseline instruction set, to be chosen at run
// time. The only file of the engine that asks which processor it is compiled for.
//
// Each isa_*.h has
//   GZ_WIDE        marks a function that is compiled for the widest instructions there are by hand
//   has_wide()     whether this machine has them
//   Floats8        eight float32, and what is done with them there: load8, store8, add8, mul8, and
//                  int8, float16 and bfloat16 widened
#pragma once

#define GZ_INLINED __attribute__((always_inline))

// Kernels that are written once, as loops without a branch, are compiled for every instruction set
// that they are dispatched to: each is inlined into a function of that target.
#define GZ_INLINE [[gnu::always_inline]] inline

#if defined(__x86_64__)
#include "base/isa_avx2.h"
#elif defined(__aarch64__)
#include "base/isa_neon.h"
#else
#include "base/isa_plain.h"
#endif

namespace gz {

// For tests, which compare what comes out: functions that are GZ_WIDE are not called. REQUIRES: no
// thread uses the engine while it is changed.
inline constinit bool is_portable = false;

inline bool runs_wide() noexcept { return !is_portable && has_wide(); }

template <class Body>
GZ_WIDE void run_wide(const Body& body) {
  body();
}

// Calls body() compiled for the widest instructions of this machine. REQUIRES a lambda that is
// GZ_INLINED, and so are the functions it calls.
template <class Body>
void run_widest(const Body& body) {
  if (runs_wide()) return run_wide(body);
  body();
}

}  // namespace gz
