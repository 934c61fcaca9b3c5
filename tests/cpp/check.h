// A test harness of one page: TEST registers a function, CHECK counts, main() in main.cpp reports.
#pragma once

#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "io/process.h"

namespace gz::test {

struct Test {
  const char* name;
  void (*run)();
};

inline std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

inline std::atomic<long> passed{0};
inline std::atomic<long> failed{0};
inline long skipped = 0;

// Whether the engine is built for another system than a test needs, which says why it does; all but
// Windows are "posix" too.
inline bool needs(const std::string& system, const char* why) {
  const std::string here = system_name();
  if (here == system || (system == "posix" && here != "windows")) return false;
  ++skipped;
  std::printf("skipped, needs %s: %s\n", system.c_str(), why);
  return true;
}

inline bool register_test(const char* name, void (*run)()) {
  tests().push_back({name, run});
  return true;
}

// May be called from any thread.
inline void check(bool holds, const char* what, const char* file, int line) {
  ++(holds ? passed : failed);
  if (!holds) std::printf("%s:%d: %s\n", file, line, what);
}

// Whether `body` throws Error, with `words` in its message.
template <class Error>
bool throws(const std::function<void()>& body, const std::string& words) {
  try {
    body();
  } catch (const Error& error) {
    if (std::string(error.what()).find(words) != std::string::npos) return true;
    std::printf("found the message \"%s\"\n", error.what());
  }
  return false;
}

}  // namespace gz::test

#define TEST(name)                                                                        \
  static void name();                                                                     \
  [[maybe_unused]] static const bool name##_added = gz::test::register_test(#name, name); \
  static void name()

#define CHECK(...) gz::test::check(static_cast<bool>(__VA_ARGS__), #__VA_ARGS__, __FILE__, __LINE__)
#define CHECK_THROWS(Error, words, ...)                                                         \
  gz::test::check(gz::test::throws<Error>([&] { __VA_ARGS__; }, words), #__VA_ARGS__, __FILE__, \
                  __LINE__)
