#include "tests/lab/imitation_gpu/late_streams.h"

#include <string>

#include "tests/support/doctest.h"

namespace late_streams_test {

using namespace pp::test::gpu;

namespace {

constexpr Stream kOne = 1, kTwo = 2, kThree = 3;

/// Streams whose work writes its letter down when it is done.
struct Letters {
  explicit Letters(Order order) : streams(order) {}
  void hand_over(Stream stream, char letter) {
    streams.hand_over(stream, [this, letter] { done.push_back(letter); });
  }
  LateStreams streams;
  std::string done;
};

}  // namespace

TEST_SUITE("imitation_gpu/late_streams") {
  TEST_CASE("work is done when it is handed over, when it is waited for, or after all others'") {
    const auto order_of = [](Order order) {
      Letters letters(order);
      letters.hand_over(kOne, 'a');
      letters.hand_over(kTwo, 'b');
      letters.hand_over(kOne, 'c');
      letters.hand_over(kThree, 'd');
      letters.streams.finish(kTwo);
      letters.done += '|';
      letters.streams.finish(kOne);
      letters.streams.finish(kThree);
      return letters.done;
    };
    CHECK(order_of(Order::at_once) == "abcd|");
    CHECK(order_of(Order::late) == "b|acd");
    CHECK(order_of(Order::last) == "acdb|");
  }

  TEST_CASE("a stream that waits for a mark does what comes before it first, and no more than that") {
    Letters letters(Order::late);
    letters.hand_over(kOne, 'a');
    const auto mark = letters.streams.record(kOne);
    letters.hand_over(kOne, 'b');
    letters.hand_over(kTwo, 'c');
    letters.streams.wait(kTwo, mark);
    letters.hand_over(kTwo, 'd');
    CHECK_FALSE(letters.streams.is_reached(*mark));
    letters.streams.finish(kTwo);
    CHECK(letters.done == "cad");
    CHECK(letters.streams.is_reached(*mark));
    letters.streams.finish(kOne);
    CHECK(letters.done == "cadb");
  }

  // The third waits for the second, which waits for the first: of both only what comes before their waits is
  // done without the first.
  TEST_CASE("others go on first as far as they can without the stream that the host waits for") {
    Letters letters(Order::last);
    letters.hand_over(kOne, 'a');
    letters.hand_over(kTwo, 'b');
    letters.streams.wait(kTwo, letters.streams.record(kOne));
    letters.hand_over(kTwo, 'c');
    letters.hand_over(kThree, 'd');
    letters.streams.wait(kThree, letters.streams.record(kTwo));
    letters.hand_over(kThree, 'e');
    letters.streams.finish(kOne);
    CHECK(letters.done == "bda");
    letters.streams.finish(kThree);
    CHECK(letters.done == "bdace");
  }

  TEST_CASE("a mark of a stream without work is reached at once; finishing twice does nothing more") {
    Letters letters(Order::late);
    CHECK(letters.streams.is_reached(*letters.streams.record(kOne)));
    letters.hand_over(kOne, 'a');
    const auto mark = letters.streams.record(kOne);
    letters.streams.finish(*mark);
    letters.streams.finish(*mark);
    CHECK(letters.done == "a");
  }
}

}  // namespace late_streams_test
