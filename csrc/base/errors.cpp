#include "base/errors.h"

#include <cstdio>
#include <cstring>
#include <utility>

namespace gz {

OsError::OsError(std::string_view operation, std::string path, int code)
    : std::runtime_error(std::string(operation) + " '" + path + "': " + std::strerror(code)),
      operation_(operation),
      path_(std::move(path)),
      code_(code) {}

FormatError::FormatError(std::string path, std::string field, std::string found,
                         std::string expected)
    : std::runtime_error(path + ": " + field + ": found " + found + ", expected " + expected),
      path_(std::move(path)),
      field_(std::move(field)) {}

void throw_out_of_range(const std::string& where, const char* thing, std::int64_t found,
                        std::int64_t end) {
  const std::string name(thing);
  throw std::out_of_range(where + ": found " + name + " " + std::to_string(found) +
                          ", expected 0 <= " + name + " < " + std::to_string(end));
}

std::string hex(std::uint64_t value) {
  char text[19];
  std::snprintf(text, sizeof text, "0x%016llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace gz
