// pipeline/window_pace: one window at a time, or two.
#include "pipeline/window_pace.h"

#include <chrono>

#include "check.h"

using namespace gz;
using namespace std::chrono_literals;

namespace {

// Pace of a consumer that takes `own` for every batch.
WindowPace pace_of(WindowPace::Duration own) {
  WindowPace pace;
  for (int batch = 0; batch < 100; ++batch) pace.consumed(own);
  return pace;
}

}  // namespace

TEST(windows_come_one_by_one_until_it_is_known_what_they_take) {
  CHECK(WindowPace().at_once() == 1);
  CHECK(pace_of(300ms).at_once() == 1);
}

TEST(two_windows_are_tried_where_the_consumer_has_something_to_do) {
  WindowPace slow = pace_of(300ms), fast = pace_of(1ms);
  slow.read(1, 200ms);
  fast.read(1, 200ms);
  CHECK(slow.at_once() == 2 && fast.at_once() == 1);
}

TEST(two_windows_stay_where_they_cause_no_wait_or_save_a_tenth) {
  WindowPace covered = pace_of(300ms);  // 300 in place of 310
  covered.read(1, 10ms);
  covered.read(2, 20ms);
  CHECK(covered.at_once() == 2);
  WindowPace saves = pace_of(100ms);  // 250 in place of 300
  saves.read(1, 200ms);
  saves.read(2, 250ms);
  CHECK(saves.at_once() == 2);
  WindowPace hardly = pace_of(100ms);  // 280 in place of 300
  hardly.read(1, 200ms);
  hardly.read(2, 280ms);
  CHECK(hardly.at_once() == 1);
}

TEST(two_windows_are_given_up_where_halves_read_as_much_as_a_whole) {
  WindowPace pace = pace_of(100ms);  // 400 in place of 300
  pace.read(1, 200ms);
  CHECK(pace.at_once() == 2);
  pace.read(2, 400ms);
  CHECK(pace.at_once() == 1);
}

TEST(what_the_other_kind_takes_is_forgotten) {
  for (const int kind : {1, 2}) {
    WindowPace pace = pace_of(100ms);
    pace.read(3 - kind, kind == 1 ? 900ms : 90ms);
    for (int window = 0; window <= WindowPace::kWindowsToForget; ++window) {
      CHECK(pace.at_once() == 1 || window == 0);
      pace.read(kind, kind == 1 ? 200ms : 900ms);
    }
    // One window: two may have become faster. Two: one takes half as long at least.
    CHECK(pace.at_once() == (kind == 1 ? 2 : 1));
  }
}
