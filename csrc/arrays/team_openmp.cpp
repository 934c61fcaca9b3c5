// Calls libgomp by the names that it has for compilers (its manual, "Implementing PARALLEL
// construct"): code of any compiler runs on the runtime that torch brings, where clang's own OpenMP
// would bring a second one.
#include "arrays/team.h"

extern "C" {
void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags);
int omp_get_max_threads();
void omp_set_num_threads(int threads);
}

namespace gz {

bool threads_are_torchs() noexcept { return true; }

void set_usual_team(int threads) noexcept { ::omp_set_num_threads(threads); }

int usual_team() noexcept { return ::omp_get_max_threads(); }

void run_team(SharedRanges& ranges, int team) {
  ::GOMP_parallel([](void* shared) { static_cast<SharedRanges*>(shared)->take_part(); }, &ranges,
                  static_cast<unsigned>(team), 0);
}

}  // namespace gz
