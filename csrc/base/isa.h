// Which functions may be compiled for more than the baseline instruction set, to be chosen at run
// time.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__)
#define GZ_HAS_AVX2_FUNCTIONS
#endif

// Kernels that are written once, as loops without a branch, are compiled for every instruction set
// that they are dispatched to: each is inlined into a function of that target.
#define GZ_INLINE [[gnu::always_inline]] inline
