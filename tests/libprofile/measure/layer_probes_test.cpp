#include "libprofile/measure/layer_probes.h"

#include "tests/support/torch_test.h"

namespace pp::profile::layer_probes_test {
namespace {

using Phase = LapTimer::Phase;

/// A device whose times come later, as a GPU's do: it knows only how many marks it has seen.
class DeferredTimer final : public Timer {
 public:
  void mark() override { ++marks_; }
  /// Lap i takes i + 1 seconds.
  std::vector<double> take() override {
    std::vector<double> laps;
    for (int i = 1; i < marks_; ++i) laps.push_back(i);
    marks_ = 0;
    return laps;
  }

 private:
  int marks_ = 0;
};

std::vector<double> of(const PassTimes& times, Phase phase) { return times[static_cast<std::size_t>(phase)]; }

}  // namespace

TEST_SUITE("libprofile/measure/layer_probes") {
  TEST_CASE("a lap belongs to the layer whose end closes it, also when times are known only afterwards") {
    DeferredTimer timer;
    LapTimer laps(timer, 2);
    laps.start();
    laps.end(0, Phase::forward);   // 1 s
    laps.end(1, Phase::forward);   // 2 s
    laps.start();                  // 3 s between forward and backward are nobody's
    laps.end(1, Phase::backward);  // 4 s
    laps.end(0, Phase::backward);  // 5 s
    const PassTimes times = laps.take();
    CHECK(of(times, Phase::forward) == std::vector<double>{1, 2});
    CHECK(of(times, Phase::backward) == std::vector<double>{5, 4});
    CHECK(of(times, Phase::weight_gradient) == std::vector<double>{0, 0});
  }

  TEST_CASE("the laps of one position add up, and the next pass starts from nothing") {
    DeferredTimer timer;
    LapTimer laps(timer, 1);
    laps.start();
    laps.end(0, Phase::input_gradient);
    laps.end(0, Phase::input_gradient);
    CHECK(of(laps.take(), Phase::input_gradient) == std::vector<double>{1 + 2});
    laps.start();
    laps.end(0, Phase::input_gradient);
    CHECK(of(laps.take(), Phase::input_gradient) == std::vector<double>{1});
  }
}

}  // namespace pp::profile::layer_probes_test
