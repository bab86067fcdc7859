#include "libprofile/device/reference_kernel.h"

#include "tests/libprofile/measure/fakes.h"
#include "tests/support/doctest.h"

namespace pp::profile {
namespace {

/// A reading takes 10 us, and others empty the caches within 2 ms.
class SharedMachine final : public Clock {
 public:
  Seconds now() const override { return now_ += Seconds(1e-5); }
  void work() {
    now_ += now_ - done_ < Seconds(2e-3) ? Seconds(1e-3) : Seconds(3e-3);
    done_ = now_;
  }

 private:
  mutable Seconds now_{1.0};
  Seconds done_{};
};

}  // namespace

TEST_SUITE("libprofile/device/cache_loss") {
  // 3.01 ms over 1.01 ms: each lap is the work and one reading.
  TEST_CASE("work that finds its data gone takes as much longer") {
    SharedMachine machine;
    CHECK(slowdown_after(Seconds(5e-3), machine, [&] { machine.work(); }) == doctest::Approx(3.01 / 1.01));
    CHECK(slowdown_after(Seconds(1e-3), machine, [&] { machine.work(); }) == doctest::Approx(1));
  }

  // Both laps are one reading of such a clock, and the pause is over after five.
  TEST_CASE("where time counts readings, no data gets lost") {
    CHECK(cache_loss(test::CountingClock()) == doctest::Approx(1));
  }
}

}  // namespace pp::profile
