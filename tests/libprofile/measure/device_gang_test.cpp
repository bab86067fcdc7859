#include "libprofile/measure/device_gang.h"

#include <atomic>
#include <set>
#include <stdexcept>
#include <string>

#include "tests/support/doctest.h"

namespace pp::profile {

TEST_SUITE("libprofile/measure/device_gang") {
  TEST_CASE("every device enters once and then runs every piece of work, always on the same thread") {
    std::vector<std::thread::id> entered(3);
    DeviceGang gang(
        3, [&](int device) { entered[static_cast<std::size_t>(device)] = std::this_thread::get_id(); });
    for (int repeat = 0; repeat < 50; ++repeat) {
      std::vector<std::thread::id> ran(3);
      gang.run([&](int device) { ran[static_cast<std::size_t>(device)] = std::this_thread::get_id(); });
      CHECK(ran == entered);
    }
    CHECK(std::set(entered.begin(), entered.end()).size() == 3);
  }

  TEST_CASE("the devices work at the same time") {
    DeviceGang gang(3, [](int) {});
    std::atomic<int> inside{0};
    // Each waits for all: run one after the other, this would never end.
    gang.run([&](int) {
      ++inside;
      while (inside < 3) std::this_thread::yield();
    });
    CHECK(inside == 3);
  }

  TEST_CASE("the error of the lowest failing device comes back after all are done, and the gang works on") {
    DeviceGang gang(3, [](int) {});
    std::atomic<int> finished{0};
    const auto failing = [&](int device) {
      ++finished;
      if (device > 0) throw std::runtime_error("device " + std::to_string(device));
    };
    CHECK_THROWS_WITH_AS(gang.run(failing), "device 1", std::runtime_error);
    CHECK(finished == 3);
    gang.run([&](int) { ++finished; });
    CHECK(finished == 6);
  }

  TEST_CASE("a device that cannot enter ends the construction") {
    const auto enter = [](int device) {
      if (device == 1) throw std::runtime_error("no core for device 1");
    };
    CHECK_THROWS_WITH_AS(DeviceGang(2, enter), "no core for device 1", std::runtime_error);
  }
}

}  // namespace pp::profile
