#include "base/errors.h"

#include <cstdio>
#include <cstring>
#include <utility>

namespace gz {

OsError::OsError(std::string_view operation, std::string path, int code)
    : std::runtime_error(text_of(operation, " '", path, "': ", std::strerror(code))),
      operation_(operation),
      path_(std::move(path)),
      code_(code) {}

void throw_out_of_range(const std::string& where, const char* thing, std::int64_t found,
                        std::int64_t end) {
  throw std::out_of_range(
      text_of(where, ": found ", thing, " ", found, ", expected 0 <= ", thing, " < ", end));
}

std::string hex(std::uint64_t value) {
  char text[19];
  std::snprintf(text, sizeof text, "0x%016llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace gz
