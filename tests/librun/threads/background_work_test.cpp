#include "librun/threads/threads.h"

#include <vector>

#include "tests/support/doctest.h"

namespace background_work_test {

using namespace pp;
using namespace pp::run;

namespace {

/// A core whose time passes as the test says.
struct Core {
  double wall = 100, computed = 7;  // s
  std::vector<double> left = {};    // to others, s
  BackgroundWork work{{[this] { return Seconds(wall); }, [this] { return Seconds(computed); },
                       [this](Seconds time) {
                         left.push_back(time.count());
                         wall += time.count();
                       }}};

  void compute(double seconds, double waits) {
    work.compute([&] {
      wall += seconds + waits;
      computed += seconds;
    });
  }
};

}  // namespace

TEST_SUITE("librun/threads/background_work") {
  TEST_CASE("who has a core alone computes without a pause, however long") {
    Core core;
    for (int i = 0; i < 1000; ++i) core.compute(0.5e-3, 0.1e-3);  // interrupts
    CHECK(core.left.empty());
  }

  TEST_CASE("who waits for a core leaves it for 30 times what it has computed since it did so before") {
    Core core;
    core.compute(1e-3, 0);
    core.compute(2e-3, 4e-3);
    REQUIRE(core.left.size() == 1);
    CHECK(core.left[0] == doctest::Approx(30 * 3e-3));
    core.computed += 1e-3;  // between two calls: a system call that writes what was computed
    core.compute(1e-3, 0);
    CHECK(core.left.size() == 1);
    core.compute(1e-3, 4e-3);
    REQUIRE(core.left.size() == 2);
    CHECK(core.left[1] == doctest::Approx(30 * 3e-3));
  }

  // After 2 s alone the first wait would be followed by a minute.
  TEST_CASE("half a second is the longest pause") {
    Core core;
    core.compute(2, 0);
    core.compute(1e-3, 4e-3);
    CHECK(core.left == std::vector<double>{0.5});
  }

  TEST_CASE("the clocks of a thread: what it computes takes time, what it sleeps computes nothing") {
    const BackgroundWork::Clocks clocks = BackgroundWork::of_thread();
    const Seconds wall = clocks.wall(), computed = clocks.computed();
    while (clocks.computed() == computed) {
    }
    CHECK(clocks.wall() > wall);
    clocks.sleep(Seconds(0));
  }
}

}  // namespace background_work_test
