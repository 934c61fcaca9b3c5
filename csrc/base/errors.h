// The two errors the engine reports besides std::invalid_argument (a bad argument) and
// std::out_of_range (a bad id): what the operating system refused, and what a file got wrong.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
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

// Raises std::out_of_range: at `where` ("rows[3]") is a `thing` ("row") not among the first `end`.
[[noreturn]] void throw_out_of_range(const std::string& where, const char* thing,
                                     std::int64_t found, std::int64_t end);

// The first of these numbers that is not 0 <= number < end; or where they end.
template <class Number>
auto find_outside(std::span<Number> numbers, std::int64_t end) {
  std::uint64_t highest = 0;  // negative ones are higher than all others
  for (const auto number : numbers) highest = std::max(highest, static_cast<std::uint64_t>(number));
  if (numbers.empty() || highest < static_cast<std::uint64_t>(end)) return numbers.end();
  return std::ranges::find_if(numbers,
                              [&](std::int64_t number) { return number < 0 || number >= end; });
}

// Raises std::out_of_range for it. Numbers are a part of the list `name`, from its number `first`
// on.
template <class Number>
void check_range(const char* name, const char* thing, std::span<Number> numbers, std::int64_t end,
                 std::int64_t first = 0) {
  const auto bad = find_outside(numbers, end);
  if (bad == numbers.end()) return;
  const std::string place = std::to_string(first + (bad - numbers.begin()));
  throw_out_of_range(std::string(name) + '[' + place + ']', thing, *bad, end);
}

// Lower-case hexadecimal with a 0x prefix and 16 digits, as checksums are shown.
std::string hex(std::uint64_t value);

}  // namespace gz
