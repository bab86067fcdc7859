#include "libprofile/device/timer.h"

#include "tests/libprofile/measure/fakes.h"
#include "tests/support/doctest.h"

namespace pp::profile {
namespace {

/// Shows the moments that it was given, one after the other.
class ScriptedClock final : public Clock {
 public:
  explicit ScriptedClock(std::vector<double> moments) : moments_(std::move(moments)) {}
  Seconds now() const override { return Seconds(moments_.at(next_++)); }

 private:
  std::vector<double> moments_;
  mutable std::size_t next_ = 0;
};

}  // namespace

TEST_SUITE("libprofile/device/timer") {
  TEST_CASE("laps run from mark to mark, one fewer than there are marks") {
    const ScriptedClock clock({1.0, 1.5, 3.5});
    ClockTimer timer(clock);
    for (int i = 0; i < 3; ++i) timer.mark();
    CHECK(timer.take() == std::vector<double>{0.5, 2.0});
  }

  TEST_CASE("taking forgets the marks: what lies between two series is nobody's lap") {
    const ScriptedClock clock({1, 2, 10, 14});
    ClockTimer timer(clock);
    timer.mark();
    timer.mark();
    CHECK(timer.take() == std::vector<double>{1.0});
    timer.mark();
    timer.mark();
    CHECK(timer.take() == std::vector<double>{4.0});
  }

  TEST_CASE("without two marks there is no lap") {
    const test::CountingClock clock;
    ClockTimer timer(clock);
    CHECK(timer.take().empty());
    timer.mark();
    CHECK(timer.take().empty());
  }
}

}  // namespace pp::profile
