// Loops over several threads.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace gz {

// A borrowed callable: no allocation, valid while the callee runs.
class RangeBody {
 public:
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, RangeBody>)
  RangeBody(F&& body)  // NOLINT: implicit on purpose, it stands for the lambda
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(body)))),
        call_([](void* object, std::int64_t begin, std::int64_t end) {
          (*static_cast<std::remove_reference_t<F>*>(object))(begin, end);
        }) {}
  void operator()(std::int64_t begin, std::int64_t end) const { call_(object_, begin, end); }

 private:
  void* object_;
  void (*call_)(void*, std::int64_t, std::int64_t);
};

// Threads besides those of a team, which take part in the loops of another.
class Helpers {
 public:
  // Calls body(r, r + 1) for each range r < `ranges`, here and on whoever is free, and returns when
  // all have returned; or body(0, ranges). REQUIRES a body that raises nothing.
  virtual void run(std::int64_t ranges, RangeBody body) = 0;

 protected:
  ~Helpers() = default;
};

// While it lives, these help with loops that this thread is to run alone.
class WithHelpers {
 public:
  explicit WithHelpers(Helpers* helpers) noexcept;
  WithHelpers(const WithHelpers&) = delete;
  WithHelpers& operator=(const WithHelpers&) = delete;
  ~WithHelpers();
};

// How many threads a call with `requested` = 0 uses: what torch.set_num_threads says where the
// OpenMP runtime is torch's, else what set_usual_team() was told; and 1 in a forked child, where
// libgomp would hang on the parent's dead team.
int num_threads(int requested);

// Whether the runtime is torch's.
bool threads_are_torchs() noexcept;
void set_usual_team(int threads) noexcept;

// Calls body(begin, end) on disjoint ranges of at most `grain` that cover [0, n). An exception in
// any of them is rethrown here, once, after all threads have stopped.
void parallel_for(std::int64_t n, std::int64_t grain, int threads, RangeBody body);

}  // namespace gz
