// The two errors the engine reports besides std::invalid_argument (a bad argument) and
// std::out_of_range (a bad id): what the operating system refused, and what a file got wrong.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace gz {

// Texts and numbers, one behind the other.
template <class... Parts>
std::string text_of(const Parts&... parts) {
  const auto shown = []<class Part>(const Part& part) {
    if constexpr (std::is_arithmetic_v<Part>) {
      return std::to_string(part);
    } else {
      return std::string_view(part);
    }
  };
  std::string all;
  (all.append(shown(parts)), ...);
  return all;
}

// A bad argument, in these words.
template <class... Parts>
std::invalid_argument invalid(const Parts&... parts) {
  return std::invalid_argument(text_of(parts...));
}

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
  template <class Field, class Found, class... Expected>
    requires(sizeof...(Expected) > 0)
  FormatError(std::string path, const Field& field, const Found& found, const Expected&... expected)
      : FormatError(std::move(path), text_of(field),
                    text_of(": found ", found, ", expected ", expected...)) {}

  const std::string& path() const noexcept { return path_; }
  const std::string& field() const noexcept { return field_; }

 private:
  FormatError(std::string path, std::string field, const std::string& rest)
      : std::runtime_error(path + ": " + field + rest),
        path_(std::move(path)),
        field_(std::move(field)) {}

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
  throw_out_of_range(text_of(name, "[", first + (bad - numbers.begin()), "]"), thing, *bad, end);
}

// Lower-case hexadecimal with a 0x prefix and 16 digits, as checksums are shown.
std::string hex(std::uint64_t value);

}  // namespace gz
