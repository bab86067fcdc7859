// Device specs: the roofline, the document, what is refused.
#include "libprofile/estimate/device_spec.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "libprofile/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/places.h"

namespace device_spec_test {

using namespace pp;
using namespace pp::profile;

namespace {

/// Products at 1e12 FLOP/s of which large ones reach half, others at 1e9; 1e9 bytes/s, half of which is
/// reached.
DeviceSpec spec() {
  DeviceSpec device;
  device.name = "test";
  device.source = "made up";
  device.memory = Bytes(1 << 30);
  device.memory_bandwidth = BytesPerSecond(1e9);
  device.memory_efficiency = 0.5;
  device.cache_bandwidth = BytesPerSecond(1e10);
  device.kernel_overhead = Seconds(1e-3);
  device.types = {{DType::float32, 1e12, 1e9, 0.5, 2e9}};
  return device;
}

double milliseconds(const Work& work, const DeviceSpec& device) {
  return 1e3 * time_of(work, device, device.types.front()).count();
}

std::string refusal(const std::function<void(Json&)>& change) {
  Json json = to_json(spec());
  change(json);
  try {
    device_spec_from_json(json);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_SUITE("libprofile/estimate/device_spec") {
  TEST_CASE("a kernel takes its overhead and the longer of computing and moving") {
    // 2e9 FLOPs are the half size: half of half of 1e12, 8 ms. 1e6 bytes at 5e8: 2 ms.
    CHECK(milliseconds({.products = 2e9, .bytes = 1e6, .kernels = 1}, spec()) == doctest::Approx(9));
    CHECK(milliseconds({.products = 2e9, .bytes = 6e6, .kernels = 1}, spec()) == doctest::Approx(13));
    // Others: 3e6 FLOPs at 1e9.
    CHECK(milliseconds({.vector = 3e6, .bytes = 1e6, .kernels = 2}, spec()) == doctest::Approx(5));
    CHECK(milliseconds({}, spec()) == 0);
  }

  TEST_CASE("products of one layer are as small as they are one by one") {
    const Work both{.products = 4e9, .product_calls = 2};
    // Each takes 8 ms, as above; one of 4e9 FLOPs would take (4e9 + 2e9) / 5e11 = 12 ms.
    CHECK(milliseconds(both, spec()) == doctest::Approx(16));
    CHECK(milliseconds({.products = 4e9, .product_calls = 1}, spec()) == doctest::Approx(12));
  }

  TEST_CASE("what does not overlap is added") {
    DeviceSpec device = spec();
    device.overlap = 0.25;  // 8 ms and three quarters of 2
    CHECK(milliseconds({.products = 2e9, .bytes = 1e6, .kernels = 1}, device) == doctest::Approx(10.5));
  }

  TEST_CASE("the first bytes of each kernel come at the cache's rate") {
    DeviceSpec device = spec();
    device.cache = Bytes(1'000'000);  // 1e6 at 1e10, 2e6 at 5e8
    CHECK(milliseconds({.bytes = 3e6, .kernels = 1}, device) == doctest::Approx(1 + 0.1 + 4));
    CHECK(milliseconds({.bytes = 2e6, .kernels = 2}, device) == doctest::Approx(2 + 0.2));
  }

  TEST_CASE("small products reach less of the peak than large ones") {
    const auto rate = [](double flops) { return flops / milliseconds({.products = flops}, spec()); };
    CHECK(rate(1e8) < rate(1e9));
    CHECK(rate(1e9) < rate(1e12));
    CHECK(rate(1e15) == doctest::Approx(5e8).epsilon(1e-4));  // half of 1e12, per ms
  }

  TEST_CASE("the figures of configs/devices have a source and survive reading and writing") {
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(pp::test::repository("configs/devices"))) {
      if (entry.path().extension() != ".json") continue;
      std::stringstream text;
      text << std::ifstream(entry.path()).rdbuf();
      INFO(entry.path().string());
      const DeviceSpec device = parse_device_spec(text.str());
      CHECK(parse_device_spec(dump_json(to_json(device))) == device);
      for (const char* key : {"context_bytes", "memory_efficiency", "cache_bandwidth_bytes_per_s", "overlap",
                              "kernel_overhead_s", "half_flops", "attention_efficiency", "tensor_link"}) {
        const bool said = device.source.find(key) != std::string::npos || device.kind == DeviceKind::cpu;
        CHECK_MESSAGE((said || device.source.find(".json") != std::string::npos), key);
      }
      // No row wider than 4,096 shows more of a data sheet's peak. A CPU's peak is itself a fitted rate.
      constexpr double kWide = 2.0 * 4096 * 4096 * 4096;
      for (const TypeRates& rates : device.types) {
        CHECK(rates.attention_efficiency.has_value());
        const double reached = std::max(rates.efficiency, rates.attention_efficiency.value_or(1));
        CHECK((reached * kWide / (kWide + rates.half_flops) <= 0.85 || device.kind == DeviceKind::cpu));
      }
      ++files;
    }
    CHECK(files == 14);
  }

  TEST_CASE("the figures of configs/trainers have a source or are assumed, and survive reading and writing") {
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(pp::test::repository("configs/trainers"))) {
      std::stringstream text;
      text << std::ifstream(entry.path()).rdbuf();
      INFO(entry.path().string());
      const TrainerSpec trainer = parse_trainer(text.str());
      CHECK(parse_trainer(dump_json(to_json(trainer))) == trainer);
      CHECK(entry.path().stem() == trainer.name);
      if (trainer.source.find("assumed: all figures") != std::string::npos || ++files == 0) continue;
      const bool rest = trainer.source.find("assumed: the rest") != std::string::npos;
      for (const char* key : {"attention", "gradients", "launch_s", "traffic", "logit_bytes", "process_bytes"})
        CHECK_MESSAGE((rest || trainer.source.find(key) != std::string::npos), key);
    }
    CHECK(files == 4);
  }

  TEST_CASE("a wrong trainer is refused by key, value and limit") {
    const auto refused = [](const std::string& keys) {
      try {
        parse_trainer(R"({"format": "pp.trainer", "version": 1, "name": "t", "source": "s")" + keys + "}");
      } catch (const Error& error) {
        return std::string(error.what());
      }
      return std::string("accepted");
    };
    CHECK(refused("") == "accepted");
    CHECK(refused(R"(, "hidden_tensor": 2)") == "/hidden_tensor: must be a number from 0.0 to 1.0, not 2");
    CHECK(refused(R"(, "attention": "flash")").starts_with("/attention: "));
    CHECK(refused(R"(, "launch": 1)").starts_with("/launch: "));
    const std::string recipe = R"({"products": "float8", "cast_bytes": 6, "weight_copies": 2})";
    CHECK(refused(R"(, "recipes": [)" + recipe + "]") == "accepted");
    CHECK(refused(R"(, "recipes": [)" + recipe + ", " + recipe + "]") ==
          "/recipes/1/products: float8 is there twice; keep one");
  }

  TEST_CASE("a wrong spec is refused by key, value and limit") {
    CHECK(refusal([](Json& json) { json["memory_bandwidth_bytes_per_s"] = 3350; }) ==
          "/memory_bandwidth_bytes_per_s: must be a number from 1000000.0 to 100000000000000.0, not 3350");
    CHECK(refusal([](Json& json) { json["types"][0]["product_flops_per_s"] = 989; }) ==
          "/types/0/product_flops_per_s: must be a number from 1000000.0 to 1e+18, not 989");
    CHECK(refusal([](Json& json) { json["types"][0]["efficiency"] = 0; }) ==
          "/types/0/efficiency: must be a number from 0.01 to 1.0, not 0");
    CHECK(refusal([](Json& json) { json["types"].push_back(json["types"][0]); }) ==
          "/types/1/dtype: float32 is there twice; keep one");
    CHECK(refusal([](Json& json) { json["types"] = Json::array(); }) ==
          "/types: has no entry; add the rates of one type, such as float32");
    CHECK(refusal([](Json& json) {
            json["types"][0]["dtype"] = "int64";
          }).starts_with("/types/0/dtype: weights cannot be int64"));
    CHECK(refusal([](Json& json) { json.erase("memory_bytes"); }).starts_with("/memory_bytes: "));
    CHECK(refusal([](Json& json) { json["bandwidth"] = 1; }).starts_with("/bandwidth: "));
    CHECK(refusal([](Json& json) { json["overlap"] = 2; }) ==
          "/overlap: must be a number from 0.0 to 1.0, not 2");
  }

  TEST_CASE("a type without rates is refused, and the types named") {
    std::string text = "accepted";
    try {
      rates_of(spec(), DType::bfloat16);
    } catch (const Error& error) {
      text = error.what();
      CHECK(error.kind() == ErrorKind::usage);
    }
    CHECK(text ==
          "device test has no rates for bfloat16, only for float32; use --dtype, or add the type to its file");
  }
}

}  // namespace device_spec_test
