#include "libprofile/report/merge.h"

#include <nlohmann/json.hpp>

#include "tests/libprofile/report/profiles.h"

#include "tests/support/doctest.h"

namespace pp::profile {
namespace {

using Sizes = std::vector<std::int64_t>;

/// With a loss and a whole-model time of `whole_ms` at each size.
Profile measured(const Sizes& sizes, double whole_ms) {
  Profile profile = test::make_profile({{"a", 1, 2, 8, 4}, {"b", 2, 1}}, sizes);
  profile.loss = profile.layers.front();
  profile.loss->name = "loss";
  for (const std::int64_t size : sizes)
    profile.whole_model.push_back({size, test::spread(whole_ms), test::spread(whole_ms), Bytes(size)});
  return profile;
}

Sizes sizes_of(const std::vector<LayerPoint>& points) {
  Sizes sizes;
  for (const LayerPoint& point : points) sizes.push_back(point.micro_batch_size);
  return sizes;
}

}  // namespace

TEST_SUITE("libprofile/report/merge") {
  TEST_CASE("the kernels of both, of an operation that both have those of whose points are kept") {
    Profile first = measured({2}, 1), second = measured({4}, 2);
    const auto product = [](std::int64_t rows, Kernel kernel) {
      return KernelChoice{{KernelTask::product, DType::float32, ProductLayout::nn, {rows, 3, 3}}, kernel, {}};
    };
    first.kernels = {product(2, Kernel::onednn), product(9, Kernel::mkl)};
    second.kernels = {product(4, Kernel::onednn), product(9, Kernel::onednn)};
    CHECK(merge_profiles(first, second).kernels ==
          std::vector{product(2, Kernel::onednn), product(4, Kernel::onednn), product(9, Kernel::mkl)});
    CHECK(merge_profiles(first, second, Overlap::second).kernels ==
          std::vector{product(2, Kernel::onednn), product(4, Kernel::onednn), product(9, Kernel::onednn)});
  }

  TEST_CASE("sizes of both stand in one order, and the result is a valid document") {
    const Profile merged = merge_profiles(measured({2, 8}, 1), measured({1, 4, 16}, 2));
    const Sizes all{1, 2, 4, 8, 16};
    CHECK(merged.micro_batch_sizes == all);
    for (const LayerProfile& layer : merged.layers) CHECK(sizes_of(layer.points) == all);
    CHECK(sizes_of(merged.loss->points) == all);
    REQUIRE(merged.whole_model.size() == 5);
    CHECK(merged.whole_model[0].forward.median == Seconds(2e-3));  // size 1, of the second
    CHECK(merged.whole_model[1].forward.median == Seconds(1e-3));  // size 2, of the first
    CHECK(parse_profile(dump_json(to_json(merged))) == merged);
  }

  TEST_CASE("merging does not depend on the order, but for what exists once") {
    const Profile first = measured({2, 8}, 1);
    const Profile second = measured({1, 4}, 2);
    CHECK(merge_profiles(first, second) == merge_profiles(second, first));
  }

  TEST_CASE("common sizes are refused, or one side's are kept") {
    const Profile first = measured({1, 2, 4}, 1);
    Profile second = measured({2, 4, 8}, 2);
    second.layers[0].points[0].workspace = Bytes(77);  // size 2
    CHECK_THROWS_WITH_AS(
        merge_profiles(first, second),
        "both profiles have micro-batch sizes [2, 4]; say whose to keep with --overlap first or "
        "--overlap second",
        Error);
    const Profile old = merge_profiles(first, second, Overlap::first);
    CHECK(old.layers[0].points[1].workspace == Bytes(0));
    CHECK(old.whole_model[1].forward.median == Seconds(1e-3));
    const Profile renewed = merge_profiles(first, second, Overlap::second);
    CHECK(renewed.layers[0].points[1].workspace == Bytes(77));
    CHECK(renewed.whole_model[1].forward.median == Seconds(2e-3));
    CHECK(renewed.whole_model[3].forward.median == Seconds(2e-3));
    CHECK(renewed.micro_batch_sizes == Sizes{1, 2, 4, 8});
  }

  TEST_CASE("context and assumptions of both are kept, optimizers of the first") {
    Profile first = measured({1}, 1);
    Profile second = measured({2}, 1);
    first.context = {{"host", "here"}, {"utc_time", "monday"}};
    second.context = {{"host", "here"}, {"load_average", "0.1"}, {"utc_time", "tuesday"}};
    first.estimated = {"saved_bytes"};
    second.estimated = {"batch_size", "saved_bytes"};
    first.optimizers = {{"sgd", 1, test::spread(1), Bytes(8)}};
    second.optimizers = {{"sgd", 1, test::spread(2), Bytes(8)}};
    const Profile merged = merge_profiles(first, second);
    CHECK(merged.context ==
          Context{{"host", "here"}, {"load_average", "0.1"}, {"utc_time", "monday; tuesday"}});
    CHECK(merged.estimated == std::vector<std::string>{"saved_bytes", "batch_size"});
    CHECK(merged.optimizers == first.optimizers);
  }

  TEST_CASE("another model, type, mode or device is refused with both values") {
    const Profile first = measured({1}, 1);
    const auto refusal = [&](auto change) {
      Profile second = measured({2}, 1);
      change(second);
      std::string text = "merged";
      try {
        merge_profiles(first, second);
      } catch (const Error& e) {
        CHECK(e.kind() == ErrorKind::usage);
        text = e.what();
      }
      return text;
    };
    CHECK(refusal([](Profile& p) { p.model.name = "other"; }) ==
          "model: \"example\" and \"other\" cannot be merged; profiles of one model can");
    CHECK(refusal([](Profile& p) { p.model_hash = "sha256:0"; }) ==
          "model hash: \"" + first.model_hash +
              "\" and \"sha256:0\" cannot be merged; the models share only their name; profile one of them "
              "again");
    CHECK(refusal([](Profile& p) { p.dtype = DType::bfloat16; }) ==
          "dtype: \"float32\" and \"bfloat16\" cannot be merged; profile both sizes in the same way");
    CHECK(
        refusal([](Profile& p) { p.memory_format = MemoryFormat::channels_last; }) ==
        "memory format: \"contiguous\" and \"channels_last\" cannot be merged; profile both sizes in the same "
        "way");
    CHECK(refusal([](Profile& p) { p.tensor_degree = 2; }) ==
          "tensor degree: \"1\" and \"2\" cannot be merged; profile both sizes in the same way");
    CHECK(refusal([](Profile& p) { p.mode = ProfileMode::isolated; }) ==
          "mode: \"in_place\" and \"isolated\" cannot be merged; profile both sizes in the same way");
    CHECK(refusal([](Profile& p) { p.loss.reset(); }) ==
          "loss: \"measured\" and \"not measured\" cannot be merged; profile both sizes in the same way");
    CHECK(refusal([](Profile& p) { p.device.kind = DeviceKind::cuda; }) ==
          "device kind: \"cpu\" and \"cuda\" cannot be merged; measure all sizes on one kind of device");
    CHECK(refusal([](Profile& p) { p.device.name = "another"; }) ==
          "device name: \"a processor\" and \"another\" cannot be merged; measure all sizes on one kind of "
          "device");
    CHECK(refusal([](Profile& p) { p.device.devices_busy = 2; }) ==
          "devices busy: \"1\" and \"2\" cannot be merged; profile both sizes in the same way");
  }
}

}  // namespace pp::profile
