// Numbers that are known at run time alone, as constants of a template.
#pragma once

#include <type_traits>

namespace gz {

// Calls call(std::integral_constant) with the constant that equals `value`; false if none does.
template <auto... kConstants, class Number, class Call>
bool with_constant(Number value, const Call& call) {
  return ((value == kConstants &&
           (call(std::integral_constant<decltype(kConstants), kConstants>{}), true)) ||
          ...);
}

}  // namespace gz
