// Bits and indices of ids, against the definition.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "arrays/narrow_ids.h"
#include "arrays/packed_ints.h"
#include "check.h"
#include "ids/accesses.h"
#include "ids/row_index.h"

using namespace gz;

TEST(ids_in_a_bit_set_are_numbered_ascending) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < 200'000; ++i) ids.push_back(-500 + (i * 7919) % 300'000);
  RankedBits bits(300'000, -500);
  bits.add(ids);
  const std::int64_t count = bits.rank();
  CHECK(count == 200'000);
  std::vector<std::int64_t> numbers(ids.size());
  bits.find(ids, numbers.data());
  std::vector<std::int64_t> sorted(ids.size());
  bits.read(0, sorted);
  bool same = true;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    same = same && sorted[static_cast<std::size_t>(numbers[i])] == ids[i];
    same = same && (i == 0 || sorted[i - 1] < sorted[i]);
  }
  CHECK(same);
}

TEST(an_empty_bit_set_holds_nothing) {
  RankedBits bits(0);
  const std::vector<std::int64_t> ids{0, -1};
  bits.add(ids);
  CHECK(bits.rank() == 0);
  std::vector<std::int64_t> numbers(2);
  bits.find(ids, numbers.data());
  CHECK(numbers[0] == -1 && numbers[1] == -1);
}

template <class Slot>
static void rows_of_integers() {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < 50'000; ++i) ids.push_back((i * 2'654'435'761) ^ (i << 40));
  const RowIndex<IntegerIds, Slot> index(IntegerIds{ids});
  CHECK(index.second() == -1);
  std::vector<std::int64_t> wanted = ids;
  wanted.push_back(-17);
  std::vector<std::int64_t> rows(wanted.size());
  index.find(IntegerIds{wanted}, rows.data());
  bool same = rows.back() == -1;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    same = same && rows[i] == static_cast<std::int64_t>(i);
  }
  CHECK(same);
}

TEST(rows_of_integers_in_short_and_long_slots) {
  rows_of_integers<std::uint32_t>();
  rows_of_integers<std::uint64_t>();
}

TEST(rows_of_strings) {
  std::string text;
  std::vector<std::int64_t> offsets{0};
  for (int i = 0; i < 20'000; ++i) {
    text += std::to_string(i * 31);
    offsets.push_back(static_cast<std::int64_t>(text.size()));
  }
  const TextIds ids{offsets, text.data()};
  const RowIndex<TextIds, std::uint32_t> index(ids);
  std::vector<std::int64_t> rows(20'000);
  index.find(ids, rows.data());
  bool same = index.second() == -1;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    same = same && rows[i] == static_cast<std::int64_t>(i);
  }
  CHECK(same);
}

TEST(the_first_repeated_id_is_reported) {
  const std::vector<std::int64_t> ids{4, 9, 4, 9};
  CHECK((RowIndex<IntegerIds, std::uint32_t>(IntegerIds{ids}).second() == 2));
}

TEST(a_row_counts_once_in_a_batch) {
  std::vector<std::int16_t> counts(10'000, 0);
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < 9'000; ++i) rows.push_back(i * 7 % 5'000);  // most of them twice
  count_rows(rows, std::span(counts));
  count_rows(std::vector<std::int64_t>{3, 3, 3}, std::span(counts));
  bool right = true;
  for (std::size_t row = 0; row < counts.size(); ++row) {
    right = right && counts[row] == (row < 5'000) + (row == 3);
  }
  CHECK(right);
}

TEST(counts_do_not_overflow) {
  const std::int16_t most = std::numeric_limits<std::int16_t>::max();
  std::vector<std::int16_t> counts{most, static_cast<std::int16_t>(most - 1)};
  count_rows(std::vector<std::int64_t>{0, 1}, std::span(counts));
  count_rows(std::vector<std::int64_t>{0, 1}, std::span(counts));
  CHECK(counts[0] == most && counts[1] == most);
}

TEST(rows_are_listed_when_they_are_first_met) {
  std::vector<std::int32_t> list(6, -1);
  std::vector<std::byte> bits(1);
  std::int64_t met =
      add_rows(std::vector<std::int64_t>{4, 1, 4}, std::span(bits), std::span(list), 0);
  met = add_rows(std::vector<std::int64_t>{1, 0}, std::span(bits), std::span(list), met);
  CHECK(met == 3);
  CHECK((list == std::vector<std::int32_t>{4, 1, 0, -1, -1, -1}));
  std::vector<std::int32_t> longer(9, -1);
  const std::vector<std::int64_t> rows{0, 1, 2, 3};
  CHECK_THROWS(std::invalid_argument, "bits: expected one for each row",
               add_rows(rows, std::span(bits), std::span(longer), 0));
  CHECK_THROWS(std::invalid_argument, "bits: expected those of the list's rows",
               add_rows(rows, std::span(bits), std::span(list), 5));
}

TEST(hot_rows_come_first) {
  const std::vector<std::int16_t> counts{2, 9, 2, 3, 1, 9};
  std::vector<std::int32_t> list{4, 5, 3, 0, 1};
  hottest_first(std::span(counts), std::span(list), 2);
  CHECK((list == std::vector<std::int32_t>{5, 1, 3, 4, 0}));
  list.push_back(6);
  CHECK_THROWS(std::out_of_range, "rows[5]: found row 6, expected 0 <= row < 6",
               hottest_first(std::span(counts), std::span(list), 2));
}

TEST(rows_that_are_not_there_count_nothing) {
  std::vector<std::int16_t> counts(4, 0);
  std::vector<std::int32_t> list(4, 0);
  for (const std::int64_t bad : {std::int64_t{-1}, std::int64_t{4}}) {
    const std::vector<std::int64_t> rows{1, bad};
    const std::string words = "rows[1]: found row " + std::to_string(bad);
    CHECK_THROWS(std::out_of_range, words, count_rows(rows, std::span(counts)));
    std::vector<std::byte> bits(1);
    CHECK_THROWS(std::out_of_range, words, add_rows(rows, std::span(bits), std::span(list), 0));
    CHECK(bits[0] == std::byte{0});
  }
  CHECK((counts == std::vector<std::int16_t>{0, 0, 0, 0}));
}

TEST(ids_that_wait_are_those_that_come_back) {
  const std::int64_t far = std::int64_t{1} << 40;
  const std::vector<std::pair<std::vector<std::int64_t>, std::int64_t>> lists{
      {{}, 1},
      {{far, far, far + 255, far + 300}, 1},  // it rises by small steps, from anywhere
      {{-3, -2, 0}, 1},
      {{7, 263}, 4},
      {{5, 4, UINT32_MAX}, 4},
      {{UINT32_MAX + std::int64_t{1}, 0}, 8},
      {{0, -1}, 8},
  };
  for (const auto& [ids, bytes] : lists) {
    CHECK(NarrowIds::bytes_for(ids) == bytes);
    Buffer<std::int64_t> buffer(std::ssize(ids));
    std::copy(ids.begin(), ids.end(), buffer.data());
    NarrowIds narrow(std::move(buffer));
    CHECK(narrow.size() == std::ssize(ids));
    std::vector<std::int64_t> seen, copied(ids.size());
    IdList(narrow).for_each([&](std::int64_t id) { seen.push_back(id); });
    NarrowIds(std::span(ids)).widen_to(copied.data());
    CHECK(seen == ids && copied == ids);
    const Buffer<std::int64_t> wide = std::move(narrow).widen();
    CHECK(std::equal(ids.begin(), ids.end(), wide.data(), wide.data() + wide.size()));
  }
}

TEST(narrow_numbers_are_what_was_set_up_to_their_end) {
  for (const std::int64_t end : {std::int64_t{10}, std::int64_t{1} << 32, std::int64_t{1} << 40}) {
    NarrowNumbers numbers;
    numbers.reset(5, 10);  // is forgotten, be it of the other kind
    numbers.reset(3, end);
    CHECK(numbers.size() == 3);
    for (const std::int64_t i : {2, 0, 1}) numbers.set(i, end - 1 - i);
    std::vector<std::int64_t> found(2);
    numbers.read(1, found);
    CHECK((found == std::vector{end - 2, end - 3}));
    CHECK(numbers[0] == end - 1);
  }
}
