#include "libprofile/device/device_set.h"

#include "libprofile/core/error.h"
#include "tests/support/doctest.h"

namespace pp::profile {
namespace {

/// A process that may use two of the machine's cores.
const MachineDevices kTwoCores{.cores = {4, 6}, .why_no_cuda = "this build has no CUDA"};
const MachineDevices kWithCuda{.cores = {0}, .cuda = [] { return 2; }};

}  // namespace

TEST_SUITE("libprofile/device/device_set") {
  TEST_CASE("cpu:K is one core, cpu:NxC are N busy devices of C cores, cuda:K is one device") {
    CHECK(parse_device_set("cpu:1", kTwoCores) == DeviceSet{.first = 1});
    CHECK(parse_device_set("cpu:2x1", kTwoCores) == DeviceSet{.count = 2});
    CHECK(parse_device_set("cpu:1x2", kTwoCores) == DeviceSet{.cores = 2});
    CHECK(parse_device_set("cuda:1", kWithCuda) == DeviceSet{.kind = DeviceKind::cuda, .first = 1, .cores = 0});
  }

  TEST_CASE("all devices are as many as the machine has cores for, from the first core on") {
    CHECK(all_devices({.first = 1}, kTwoCores) == DeviceSet{.count = 2});
    CHECK(all_devices({.cores = 2}, kTwoCores) == DeviceSet{.count = 1, .cores = 2});
    CHECK(all_devices({.count = 3}, kTwoCores) == DeviceSet{.count = 3});  // asked for more than there are
    const DeviceSet gpu{.kind = DeviceKind::cuda, .first = 1, .cores = 0};
    CHECK(all_devices(gpu, kWithCuda) == gpu);
  }

  TEST_CASE("a device set's text reads as the same set") {
    for (const char* text : {"cpu:0", "cpu:1", "cpu:2x1", "cpu:3x4", "cpu:1x2"}) {
      CHECK(to_text(parse_device_set(text, kTwoCores)) == text);
    }
    CHECK(to_text(parse_device_set("cuda:1", kWithCuda)) == "cuda:1");
  }

  TEST_CASE("more cores than the machine has are allowed: devices then share them") {
    CHECK(parse_device_set("cpu:4x2", kTwoCores) == DeviceSet{.count = 4, .cores = 2});
  }

  TEST_CASE("a device that does not exist is refused with those that do") {
    CHECK_THROWS_WITH_AS(
        parse_device_set("cpu:2", kTwoCores),
        "device \"cpu:2\" does not exist; this machine has cpu:0, cpu:1 (this build has no CUDA)", Error);
    CHECK_THROWS_WITH_AS(
        parse_device_set("cuda:0", kTwoCores),
        "device \"cuda:0\" does not exist; this machine has cpu:0, cpu:1 (this build has no CUDA)", Error);
    CHECK_THROWS_WITH_AS(parse_device_set("cuda:2", kWithCuda),
                         "device \"cuda:2\" does not exist; this machine has cpu:0, cuda:0, cuda:1", Error);
  }

  TEST_CASE("text of another form is refused with the forms") {
    const std::string forms =
        "; use cpu:K (core K), cpu:NxC (N devices of C cores each, all working) or cuda:K";
    const auto refused = [&](const char* text, const std::string& why) {
      CAPTURE(text);
      CHECK_THROWS_WITH_AS(parse_device_set(text, kTwoCores),
                           ("device \"" + std::string(text) + "\": " + why + forms).c_str(), Error);
    };
    refused("tpu:0", "unknown kind \"tpu\"");
    refused("", "unknown kind \"\"");
    refused("cpu", "\"\" is not a core number");
    refused("cpu:-1", "\"-1\" is not a core number");
    refused("cpu:1.5", "\"1.5\" is not a core number");
    refused("cpu:99999999999", "\"99999999999\" is not a core number");
    refused("cpu:0x1", "\"0x1\" is not two counts from 1 to 1024");
    refused("cpu:2x", "\"2x\" is not two counts from 1 to 1024");
    refused("cpu:2000x1", "\"2000x1\" is not two counts from 1 to 1024");
    refused("cuda:a", "\"a\" is not a device number");
  }

  TEST_CASE("devices take the next cores in turn, and start over when there are too few") {
    const std::vector<int> machine{4, 6, 7};
    CHECK(cores_of({.first = 1}, 0, machine) == std::vector{6});
    CHECK(cores_of({.count = 3}, 2, machine) == std::vector{7});
    CHECK(cores_of({.count = 2, .cores = 2}, 0, machine) == std::vector{4, 6});
    CHECK(cores_of({.count = 2, .cores = 2}, 1, machine) == std::vector{7, 4});
    CHECK(cores_of({.cores = 9}, 0, machine) == machine);
  }
}

}  // namespace pp::profile
