// The two errors the engine reports besides std::invalid_argument (a bad argument) and
// std::out_of_range (a bad id): what the operating system refused, and what a file got wrong.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace gz {

// An operating-system call failed. Becomes Python's OSError (FileNotFoundError, PermissionError …).
class OsError : public std::runtime_error {
 public:
  OsError(std::string_view operation, std::string path, int code);

  const std::string& path() const noexcept { return path_; }
  int code() const noexcept { return code_; }
  // The message without errno's own text, e.g. "cannot open".
  const std::string& operation() const noexcept { return operation_; }

 private:
  std::string operation_;
  std::string path_;
  int code_;
};

// A file of the store does not say what the format demands.
class FormatError : public std::runtime_error {
 public:
  FormatError(std::string path, std::string field, std::string found, std::string expected);

  const std::string& path() const noexcept { return path_; }
  const std::string& field() const noexcept { return field_; }

 private:
  std::string path_;
  std::string field_;
};

// Lower-case hexadecimal with a 0x prefix and 16 digits, as checksums are shown.
std::string hex(std::uint64_t value);

}  // namespace gz
