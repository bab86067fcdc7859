// The profiler on a CUDA device: what profiler_test.cpp and model_runner_test.cpp say of a CPU.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "libprofile/device/compute_device.h"
#include "libprofile/device/process.h"
#include "libprofile/measure/model_runner.h"
#include "libprofile/measure/profile_run.h"
#include "tests/libprofile/measure/fakes.h"
#include "tests/libprofile/model/graph_builder.h"
#include "tests/support/called_operations.h"
#include "tests/support/torch_test.h"

#include "tests/support/gpu.h"

namespace pp::profile::gpu_profiler_test {
namespace {

using model::test::GraphBuilder;
using model::test::whole;

ResolvedModel image_model() {
  return GraphBuilder()
      .input("image", {3, 8, 8})
      .target("label", {})
      .layer("conv", "conv2d", {"image"},
             {{"out_channels", whole(4)}, {"kernel_size", whole(3)}, {"padding", whole(1)}})
      .layer("relu", "relu", {"conv"})
      .layer("drop", "dropout", {"relu"}, {{"p", 0.5}})
      .layer("flat", "flatten", {"drop"})
      .layer("head", "linear", {"flat"}, {{"out_features", whole(5)}})
      .output("head")
      .loss("cross_entropy", "head", "label")
      .build();
}

/// Notes its marks among the operations that the thread calls.
class NotingTimer final : public Timer {
 public:
  void mark() override {
    pp::test::CalledOperations::names().emplace_back("mark");
    ++marks_;
  }
  std::vector<double> take() override {
    return std::vector<double>(static_cast<std::size_t>(std::max(0, std::exchange(marks_, 0) - 1)));
  }

 private:
  int marks_ = 0;
};

/// body(device) on a thread that has entered cuda:0.
template <class Body>
void on_device_thread(const Body& body) {
  pp::test::on_own_thread([&] {
    const at::Device device = tensor_device(DeviceKind::cuda, 0);
    enter_device(device, /*threads=*/1);
    body(device);
  });
}

Profile measure(const ModelGraph& graph, ProfileOptions options, test::RecordingObserver& observer) {
  prepare_process();
  options.devices = parse_device_set("cuda:0", machine_devices());
  options.precision = 0.5;
  options.budget_per_size = Seconds(0.05);
  return profile_model(graph, options, observer);
}

}  // namespace

TEST_SUITE("gpu/libprofile/measure/profiler") {
  TEST_CASE("saved bytes are those that autograd keeps, as on a CPU") {
    PP_NEEDS_CUDA(1);
    prepare_process();
    on_device_thread([](const at::Device& device) {
      const ResolvedModel model = image_model();
      const SteadyClock clock;
      const DeviceProbes probes = make_probes(device, clock);
      MemoryAccount account;
      const ChargeMemory charged(account, DeviceKind::cuda);
      ModelRunner runner(model, whole_model(model), {.micro_batch_sizes = {2}}, account, device, *probes.timer);
      runner.warm_up(0);
      const PassBytes bytes = runner.measure_bytes(0);
      // Counted by hand as in model_runner_test.cpp, 2 samples: conv its input, 2*3*8*8 floats; relu its
      // output, 2*4*8*8; drop a mask of one byte per element; head its input, 2*256 floats.
      CHECK(bytes.saved[0] == SavedBytes{Bytes(1536), Bytes(1536)});
      CHECK(bytes.saved[1] == SavedBytes{Bytes(2048), Bytes(0)});
      CHECK(bytes.saved[2] == SavedBytes{Bytes(512), Bytes(0)});
      CHECK(bytes.saved[3] == SavedBytes{});
      CHECK(bytes.saved[4] == SavedBytes{Bytes(2048), Bytes(2048)});
      CHECK(bytes.workspace[1].value >= 2 * 2048);  // the gradients of its output and of its input
      CHECK(bytes.peak > bytes.kept);
    });
  }

  TEST_CASE(
      "a profile has times of every layer, both halves of backward, both optimizers and the whole model") {
    PP_NEEDS_CUDA(1);
    test::RecordingObserver observer;
    const Profile profile = measure(image_model().graph, {.micro_batch_sizes = {2, 4}}, observer);
    CHECK(profile.device.kind == DeviceKind::cuda);
    CHECK(profile.device.name == cuda_device_name(0));
    CHECK(profile.device.memory > Bytes(0));
    for (const LayerProfile& layer : profile.layers) {
      for (const LayerPoint& point : layer.points) CHECK(point.forward.median.count() > 0);
    }
    const LayerPoint& head = profile.layers[4].points[1];
    CHECK(head.backward.median.count() > 0);
    CHECK(head.input_gradient.value().median.count() > 0);
    CHECK(head.weight_gradient.value().median.count() > 0);
    CHECK(profile.loss->points[0].forward.median.count() > 0);
    REQUIRE(profile.whole_model.size() == 2);
    CHECK(profile.whole_model[0].forward.median.count() > 0);
    CHECK(profile.optimizers.size() == 2);
    CHECK(parse_profile(dump_json(to_json(profile))) == profile);
  }

  // A GPU's samples are read ahead by a thread of their own (librun/worker/data_feed.h).
  TEST_CASE("the first layer's time begins when its samples are on the device") {
    PP_NEEDS_CUDA(1);
    prepare_process();
    on_device_thread([](const at::Device& device) {
      const ResolvedModel model = image_model();
      NotingTimer timer;
      const MemoryAccount account;
      ModelRunner runner(model, whole_model(model), {.micro_batch_sizes = {2}}, account, device, timer);
      runner.batches().make(0);
      const pp::test::CalledOperations called;
      runner.run_visit({.size = 0, .kind = kFull, .passes = 1}, /*in_flight=*/1);
      const std::vector<std::string> names = pp::test::CalledOperations::names();
      const auto first_mark = std::ranges::find(names, "mark");
      REQUIRE(first_mark != names.end());
      CHECK(std::count(names.begin(), first_mark, "aten::index_select") == 2);  // images and labels
      CHECK(std::count(first_mark, names.end(), "aten::index_select") == 0);
    });
  }

  TEST_CASE("a size beyond the device's memory is recorded as out of memory") {
    PP_NEEDS_CUDA(1);
    test::RecordingObserver observer;
    // The input alone is 4 * 2^20 floats a sample: 2^18 samples are 4 TiB, more than the host may have either.
    const std::int64_t huge = std::int64_t{1} << 18;
    const ModelGraph graph =
        GraphBuilder().input("x", {4, 1024, 1024}).layer("relu", "relu", {"x"}).output("relu").build().graph;
    const Profile profile = measure(graph, {.micro_batch_sizes = {1, huge}}, observer);
    CHECK_FALSE(profile.layers[0].points[0].out_of_memory);
    CHECK(profile.layers[0].points[1].out_of_memory);
  }

  TEST_CASE("bfloat16 takes half the bytes") {
    PP_NEEDS_CUDA(1);
    test::RecordingObserver observer;
    const Profile profile =
        measure(image_model().graph, {.micro_batch_sizes = {2}, .dtype = DType::bfloat16}, observer);
    CHECK(profile.layers[1].points[0].output == Bytes(2 * 4 * 8 * 8 * 2));
  }

  TEST_CASE("events time what the device does, not what the host waits for") {
    PP_NEEDS_CUDA(1);
    on_device_thread([](const at::Device& device) {
      const SteadyClock clock;
      const DeviceProbes probes = make_probes(device, clock);
      for (int i = 0; i < 3; ++i) probes.reference();
      wait_for(device);
      probes.timer->mark();
      for (int i = 0; i < 20; ++i) probes.reference();
      probes.timer->mark();
      probes.timer->mark();
      const std::vector<double> laps = probes.timer->take();
      REQUIRE(laps.size() == 2);
      CHECK(laps[0] > 0);
      CHECK(laps[1] < laps[0]);
      CHECK(probes.timer->take().empty());
    });
  }
}

}  // namespace pp::profile::gpu_profiler_test
