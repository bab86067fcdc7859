// Which devices one profile stands for, and how fast the others are.
#include "libprofile/report/device_classes.h"

#include "tests/apps/sample_profile.h"

#include "tests/support/doctest.h"

using namespace pp;

namespace {

/// Two layers; 12 ms forward and backward together at 16 samples, times `factor`.
Profile profile_of(const std::string& device, double factor, int cores = 1) {
  const std::vector<double> forward{1 * factor, 3 * factor};
  Profile profile = test::sample_profile(forward);
  profile.device.name = device;
  profile.device.cores_per_device = cores;
  return profile;
}

}  // namespace

TEST_SUITE("libprofile/report/device_classes") {
  TEST_CASE("devices of one name and as many cores are a class, whose speed is the first member's") {
    const std::vector<Profile> profiles{profile_of("AMD EPYC 7B13", 1), profile_of("Intel(R) Xeon(R)", 2),
                                        profile_of("AMD EPYC 7B13", 1.1), profile_of("AMD EPYC 7B13", 0.5, 2)};
    const std::vector<profile::DeviceClass> classes = profile::device_classes(profiles);
    REQUIRE(classes.size() == 3);
    CHECK(classes[0].name == "amd-epyc-7b13");
    CHECK(classes[0].members == std::vector<int>{0, 2});
    CHECK(classes[0].speed == 1);
    CHECK(classes[1].name == "intel-r-xeon-r");
    CHECK(classes[1].members == std::vector<int>{1});
    CHECK(classes[1].speed == doctest::Approx(0.5));  // 12 of 24 ms
    CHECK(classes[2].name == "amd-epyc-7b13-2");
    CHECK(classes[2].speed == doctest::Approx(2));
  }

  TEST_CASE("a member that is much slower than the first of its class is named") {
    const std::vector<Profile> profiles{profile_of("cpu", 1), profile_of("cpu", 1.2), profile_of("cpu", 1.5)};
    const std::vector<std::string> names{"rank 0 on a", "rank 1 on a", "rank 2 on b"};
    const auto findings = profile::class_findings(profiles, profile::device_classes(profiles), names);
    REQUIRE(findings.size() == 1);
    CHECK(findings[0] ==
          "rank 2 on b takes 1.50 times as long as rank 0 on a, a device of the same name, whose profile "
          "counts for "
          "both: look whether another program runs there, or whether it is throttled");
  }
}
