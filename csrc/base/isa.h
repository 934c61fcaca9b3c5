// Which functions may be compiled for more than the baseline instruction set, to be chosen at run
// time.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__)
#define GZ_HAS_AVX2_FUNCTIONS
#endif
