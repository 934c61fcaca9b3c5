#include "gather/row_order.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace gz {

RowOrder::RowOrder(std::span<const std::int32_t> places, std::int64_t num_again)
    : places_(std::ssize(places)), num_again_(num_again) {
  for (std::size_t row = 0; row < places.size(); ++row) {
    if (places[row] < -1 || places[row] >= num_again) {
      throw std::invalid_argument("places[" + std::to_string(row) + "]: found " +
                                  std::to_string(places[row]) + ", expected -1 <= place < " +
                                  std::to_string(num_again));
    }
  }
  std::copy(places.begin(), places.end(), places_.data());
}

}  // namespace gz
