// Which devices one profile stands for, and how fast the others are.
#include "libprofile/report/device_classes.h"

#include "tests/apps/sample_profile.h"

#include "tests/support/doctest.h"

namespace device_classes_test {

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

std::vector<profile::DeviceClass> classes_of(const std::vector<Profile>& profiles) {
  std::vector<ProfiledDevice> devices;
  for (const Profile& profile : profiles) devices.push_back(profile.device);
  std::vector<profile::DeviceClass> classes = profile::device_classes(devices);
  profile::set_speeds(classes, profiles);
  return classes;
}

void run_out_of_memory(Profile& profile, std::size_t size) {
  for (LayerProfile& layer : profile.layers) {
    layer.points[size] = {};
    layer.points[size].micro_batch_size = profile.micro_batch_sizes[size];
    layer.points[size].out_of_memory = true;
  }
}

}  // namespace

TEST_SUITE("libprofile/report/device_classes") {
  TEST_CASE("devices of one name and as many cores are a class, whose speed is the first member's") {
    const std::vector<Profile> profiles{profile_of("AMD EPYC 7B13", 1), profile_of("Intel(R) Xeon(R)", 2),
                                        profile_of("AMD EPYC 7B13", 1.1), profile_of("AMD EPYC 7B13", 0.5, 2)};
    const std::vector<profile::DeviceClass> classes = classes_of(profiles);
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

  // Of 40 and 80 GB: one device lacks the largest size. The others are 3 times as slow at each.
  TEST_CASE("speeds are those at the largest size that has fitted into both devices") {
    for (const std::size_t smaller : {0U, 1U}) {
      std::vector<Profile> profiles{profile_of("a", 1), profile_of("b", 3)};
      const std::size_t last = profiles[0].micro_batch_sizes.size() - 1;
      REQUIRE(last > 0);
      run_out_of_memory(profiles[smaller], last);
      CHECK(classes_of(profiles)[1].speed == doctest::Approx(1.0 / 3));
      // One was measured at sizes of its own (--micro-batch-sizes auto).
      profiles[smaller].micro_batch_sizes.pop_back();
      for (LayerProfile& layer : profiles[smaller].layers) layer.points.pop_back();
      CHECK(classes_of(profiles)[1].speed == doctest::Approx(1.0 / 3));
    }
  }

  TEST_CASE("no size that has fitted into both is said, and the speed stays 1") {
    std::vector<Profile> profiles{profile_of("a", 1), profile_of("b", 3)};
    for (std::size_t size = 0; size < profiles[0].micro_batch_sizes.size(); ++size)
      run_out_of_memory(profiles[0], size);
    const auto classes = classes_of(profiles);
    CHECK(classes[1].speed == 1);
    const std::vector<std::string> names{"rank 0 on a", "rank 1 on a"};
    const auto findings = profile::class_findings(profiles, classes, names);
    REQUIRE_FALSE(findings.empty());
    CHECK(
        findings.back() ==
        "no micro-batch size has fitted into both rank 0 on a and rank 1 on a: class b is taken as fast as the "
        "first; add smaller ones to --micro-batch-sizes");
  }

  TEST_CASE("a member that is much slower than the first of its class is named") {
    const std::vector<Profile> profiles{profile_of("cpu", 1), profile_of("cpu", 1.2), profile_of("cpu", 1.5)};
    const std::vector<std::string> names{"rank 0 on a", "rank 1 on a", "rank 2 on b"};
    const auto findings = profile::class_findings(profiles, classes_of(profiles), names);
    REQUIRE(findings.size() == 1);
    CHECK(findings[0] ==
          "rank 2 on b takes 1.50 times as long as rank 0 on a, a device of the same name, whose profile "
          "counts for "
          "both: look whether another program runs there, or whether it is throttled");
  }
}

}  // namespace device_classes_test
