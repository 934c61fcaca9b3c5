// Runs every test, or those whose name contains the first argument.
#include <cstdio>
#include <cstring>
#include <exception>

#include "check.h"

int main(int argc, char** argv) {
  using namespace gz::test;
  for (const Test& test : tests()) {
    if (argc > 1 && std::strstr(test.name, argv[1]) == nullptr) continue;
    const long before = failed;
    try {
      test.run();
    } catch (const std::exception& error) {
      ++failed;
      std::printf("%s: %s\n", test.name, error.what());
    }
    if (failed != before) std::printf("FAILED %s\n", test.name);
  }
  std::printf("%zu tests: %ld passed, %ld failed\n", tests().size(), passed.load(), failed.load());
  return failed == 0 ? 0 : 1;
}
