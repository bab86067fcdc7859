// Runs from a CSV file, the closed form of a step, and figures found again from the steps that they make.
#include "libprofile/estimate/fit_device.h"

#include <string>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/model/families/families.h"
#include "tests/support/doctest.h"

namespace fit_device_test {

using namespace pp;
using namespace pp::profile;

namespace {

const std::string kHeader = "model,micro_batch,micro_batches,stages,replicas,tensor,recompute,step_s\n";

template <class Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

std::string refused(const std::string& text) {
  return refusal([&] { parse_measured_runs(text); });
}

DeviceSpec device() {
  DeviceSpec device;
  device.name = "true";
  device.memory = Bytes(std::int64_t{1} << 40);
  device.memory_bandwidth = BytesPerSecond(1e12);
  device.memory_efficiency = 0.8;
  device.kernel_overhead = Seconds(5e-6);
  device.tensor_link = Link{.bandwidth = BytesPerSecond(1e11), .latency = Seconds(1e-5)};
  device.types = {{DType::bfloat16, 3e14, 2e13, 0.7, 5e9}};
  return device;
}

/// One trainer, `some`.
Figures figures(const DeviceSpec& device = fit_device_test::device()) {
  TrainerSpec trainer;
  trainer.name = "some";
  trainer.launch = Seconds(2e-5);
  trainer.backward_launch = Seconds(3e-5);
  return {device, {trainer}};
}

StepWork step(int width, int layers, MeasuredRun run) {
  run.model = "gpt2:layers=" + std::to_string(layers) + ",width=" + std::to_string(width) +
              ",heads=8,sequence=256,vocabulary=1024,tied=0";
  return step_work(pp::model::build_family(run.model), run);
}

/// Several widths, which are the sources, sizes, stages, replicas and degrees, measured as `truth` says.
std::vector<StepWork> runs_of(const Figures& truth) {
  std::vector<StepWork> runs;
  for (const int width : {128, 512, 2048})
    for (const int size : {1, 4, 16})
      for (const int stages : {1, 2})
        for (const int tensor : {1, 4}) {
          runs.push_back(step(width, 4,
                              {.micro_batch = size,
                               .micro_batches = 4,
                               .stages = stages,
                               .replicas = 2,
                               .tensor_degree = tensor,
                               .recompute = stages == 2}));
          runs.back().run.step = step_time(runs.back(), truth.device, truth.trainers[0]);
          runs.back().source = std::to_string(width);
        }
  return runs;
}

}  // namespace

TEST_SUITE("libprofile/estimate/measured_runs") {
  TEST_CASE("a row is a run, and what is not said is the usual") {
    const auto runs = parse_measured_runs(
        "# where from\n" + kHeader + "\"gpt2:layers=2,width=64\",4,8,2,1,2,1,0.25\r\n\nlenet5,1,2,,,,,3\n");
    REQUIRE(runs.size() == 2);
    CHECK(runs[0] == MeasuredRun{.model = "gpt2:layers=2,width=64",
                                 .micro_batch = 4,
                                 .micro_batches = 8,
                                 .stages = 2,
                                 .tensor_degree = 2,
                                 .recompute = true,
                                 .step = Seconds(0.25),
                                 .line = 3});
    CHECK(runs[1] == MeasuredRun{.model = "lenet5", .micro_batches = 2, .step = Seconds(3), .line = 5});
  }

  TEST_CASE("a run that ran out of memory says nothing of steps") {
    const auto runs = parse_measured_runs("model,micro_batch,micro_batches,step_s,ran\na,1,2,,0\nb,1,2,3,1\n");
    REQUIRE(runs.size() == 1);
    CHECK(runs[0].model == "b");
  }

  TEST_CASE("a wrong line is refused by number, column and value") {
    CHECK(refused("model,step\n") ==
          "line 1: unknown column \"step\"; use model, micro_batch, micro_batches, stages, replicas, tensor, "
          "context, shards, sharding, "
          "chunks, sequence_parallel, recompute, dtype, precision, sharded, trainer, node, cards, "
          "card_bytes_per_s, "
          "card_latency_s, link_bytes_per_s, step_s, peak_bytes, ran");
    CHECK(refused("model,micro_batch,micro_batches\n") == "line 1: the header has no column step_s; add it");
    CHECK(refused("model,model,micro_batch,micro_batches,step_s\n") ==
          "line 1: column model is there twice; keep one");
    CHECK(refused(kHeader + "gpt2:layers=2,width=64,1,1,1,1,1,0,1\n") ==
          "line 2: has 9 fields, but the header names 8; quote models that hold commas");
    CHECK(refused(kHeader + "gpt2,0,1,1,1,1,0,1\n") ==
          "line 2: micro_batch must be a whole number from 1, not \"0\"");
    CHECK(refused(kHeader + "gpt2,1,1,1,1,1,yes,1\n") == "line 2: recompute must be 0 or 1, not \"yes\"");
    CHECK(refused(kHeader + "gpt2,1,1,1,1,1,0,-1\n") == "line 2: step_s must be a number above 0, not \"-1\"");
    CHECK(refused(kHeader + "\"gpt2,1,1,1,1,1,0,1\n") == "line 2: a quote is not closed");
  }
}

TEST_SUITE("libprofile/estimate/step_model") {
  TEST_CASE("a step is (M - 1) times the slowest stage and once the way through all") {
    // Three micro-batches in two stages of one block each. The works are made up: stage 0 takes 1 s forward and
    // 2 backward, stage 1, with the loss, 2 and 4, at 1 byte/s. A message of 10 bytes at 100 bytes/s: 0.1 s.
    DeviceSpec plain;
    plain.memory_bandwidth = BytesPerSecond(1);
    plain.tensor_link = Link{.bandwidth = BytesPerSecond(100)};
    plain.types = {{DType::bfloat16, 1, 1, 1, 0}};
    StepWork step;
    step.run = {.micro_batches = 3, .stages = 2, .recompute = false};
    step.works.resize(3);
    step.works[0].forward = {{.bytes = 1}};
    step.works[0].input_gradient = {{.bytes = 2}};
    step.works[1].forward = {{.bytes = 1.5}};
    step.works[1].weight_gradient = {{.bytes = 4}};
    step.works[2].forward = {{.bytes = 0.5}};
    step.stage_of = {0, 1};
    step.in_block = {true, true, false};
    step.stage_parameters = {0, 0};
    step.message = 10;
    // 2 (6 + 0.2) + 9 + 0.2
    CHECK(step_time(step, plain).count() == doctest::Approx(21.6));
    step.run.recompute = true;  // all but the loss: 2 (7.5 + 0.2) + 11.5 + 0.2
    CHECK(step_time(step, plain).count() == doctest::Approx(27.1));
    // Four replicas reduce 100 bytes: 6/4 of 1 s. An update touches 8 times as many bytes: 800 s.
    step.run.replicas = 4;
    step.stage_parameters = {30, 50};
    CHECK(step_time(step, plain).count() == doctest::Approx(27.1 + 1.5 + 800));
    // Mixed precision sums 4 bytes a parameter: 3 s, and touches 4 + 24 + 2: 1500 s.
    step.run.precision = "mixed";
    CHECK(step_time(step, plain).count() == doctest::Approx(27.1 + 3 + 1500));
    TrainerSpec trainer;
    trainer.hidden_gradients = 0.1;  // of the longest backward, of 1.5 + 4 s
    CHECK(step_time(step, plain, trainer).count() == doctest::Approx(27.1 + 3 - 0.55 + 1500));
    step.run.sharded = true;  // 4 + 2 bytes summed and given back, a quarter updated
    CHECK(step_time(step, plain).count() == doctest::Approx(27.1 + 2.25 + 375));
  }

  TEST_CASE("between nodes replicas share the cards, and each bucket takes its latencies") {
    // Two nodes of two devices, one card of 10 bytes/s and 1 s each. 100 bytes in a ring of four: 6/4 of 10 s
    // and 6 latencies; in buckets of 30 bytes four times 6. In tensor groups of two: a ring of two for each
    // member, both over one card: 1 of 20 s, 2 latencies.
    DeviceSpec plain;
    plain.memory_bandwidth = BytesPerSecond(1e30);
    plain.tensor_link = Link{.bandwidth = BytesPerSecond(1e30)};
    plain.types = {{DType::bfloat16, 1, 1, 1, 0}};
    StepWork step;
    step.run = {.replicas = 4, .node = 2, .card = {.bandwidth = BytesPerSecond(10), .latency = Seconds(1)}};
    step.stage_parameters = {50};
    CHECK(step_time(step, plain).count() == doctest::Approx(15 + 6));
    TrainerSpec trainer;
    trainer.bucket = Bytes(30);
    CHECK(step_time(step, plain, trainer).count() == doctest::Approx(15 + 24));
    step.run.replicas = step.run.tensor_degree = 2;
    CHECK(step_time(step, plain).count() == doctest::Approx(20 + 2));
    step.run.cards = 2;
    CHECK(step_time(step, plain).count() == doctest::Approx(10 + 2));
  }

  TEST_CASE("blocks are divided evenly, embedding and head stay at the ends") {
    const StepWork two = step(64, 4, {.micro_batches = 1, .stages = 2});
    const auto& layers =
        resolve(pp::model::build_family("gpt2:layers=4,width=64,heads=8,sequence=256,vocabulary=1024,tied=0"))
            .graph.layers;
    REQUIRE(two.stage_of.size() == layers.size());
    for (std::size_t l = 0; l < layers.size(); ++l) {
      const std::string& name = layers[l].name;
      const bool late =
          name.starts_with("block2") || name.starts_with("block3") || name == "norm" || name == "head";
      CHECK_MESSAGE(two.stage_of[l] == (late ? 1 : 0), name);
    }
    CHECK(two.message == 256 * 64 * 2);
    CHECK(refusal([] {
            step(64, 4, {.stages = 4, .chunks = 2, .line = 7});
          }).starts_with("line 7: 8 stages do not divide the 4 blocks of gpt2:layers=4"));
    // Two more would divide: the first stage and the last have one block less, of three 1, 2 and 1.
    const StepWork three = step(64, 4, {.stages = 3});
    for (std::size_t l = 0; l < layers.size(); ++l) {
      const std::string& name = layers[l].name;
      const bool middle = name.starts_with("block1") || name.starts_with("block2");
      const bool late = name.starts_with("block3") || name == "norm" || name == "head";
      CHECK_MESSAGE(three.stage_of[l] == (late ? 2 : middle ? 1 : 0), name);
    }
  }
}

TEST_SUITE("libprofile/estimate/fit_device") {
  TEST_CASE("figures are found again from the steps that they make") {
    const std::vector<StepWork> runs = runs_of(figures());
    Figures start = figures();
    start.device.types[0].efficiency = 0.5;
    start.trainers[0].launch = Seconds(1e-5);
    start.device.memory_efficiency = 0.5;
    start.device.tensor_link->latency = Seconds(3e-5);
    const DeviceFit fit = fit_device(
        start, runs,
        {.parameters = {"types.efficiency", "some.launch_s", "memory_efficiency", "tensor_link.latency_s"}});
    CHECK(fit.before.mean > 0.05);
    CHECK(fit.all.mean < 0.002);
    CHECK(fit.other_half.mean < 0.005);
    CHECK(fit.fitted_half.runs + fit.other_half.runs == static_cast<int>(runs.size()));
    CHECK(fit.figures.device.types[0].efficiency == doctest::Approx(0.7).epsilon(0.01));
    CHECK(fit.figures.trainers[0].launch.count() == doctest::Approx(2e-5).epsilon(0.01));
    CHECK(fit.figures.device.memory_efficiency == doctest::Approx(0.8).epsilon(0.02));
    CHECK(fit.figures.device.tensor_link->latency.count() == doctest::Approx(1e-5).epsilon(0.02));
    CHECK(fit.figures.device.kernel_overhead == start.device.kernel_overhead);  // not named
  }

  TEST_CASE("a start that is far off ends at the same figures") {
    const std::vector<StepWork> runs = runs_of(figures());
    Figures start = figures();
    start.device.types[0].efficiency = 0.05;
    start.trainers[0].launch = Seconds(1e-3);
    const DeviceFit fit = fit_device(start, runs, {.parameters = {"types.efficiency", "some.launch_s"}});
    CHECK(fit.before.mean > 3);
    CHECK(fit.figures.device.types[0].efficiency == doctest::Approx(0.7).epsilon(0.01));
    CHECK(fit.figures.trainers[0].launch.count() == doctest::Approx(2e-5).epsilon(0.02));
  }

  TEST_CASE("a parameter that no run depends on stays as it was and is named") {
    Figures start = figures();
    start.device.types[0].unaligned_efficiency = 0.5;  // all sizes are multiples of 16 bytes
    start.device.types[0].efficiency = 0.6;
    const DeviceFit fit = fit_device(start, runs_of(figures()),
                                     {.parameters = {"types.efficiency", "types.unaligned_efficiency"}});
    REQUIRE(fit.fitted.size() == 1);
    CHECK(fit.fitted[0].parameter == "types.efficiency");
    CHECK(fit.fitted[0].sources.size() == 3);
    CHECK(fit.unseen == std::vector<std::string>{"types.unaligned_efficiency"});
    CHECK(fit.figures.device.types[0].unaligned_efficiency == 0.5);
  }

  TEST_CASE("a source that is left out is judged by the others, and weighs as much as they do") {
    // 24 rows of two widths agree on 0.7; the third source, of 4 rows, was measured twice as slow.
    std::vector<StepWork> runs = runs_of(figures());
    std::erase_if(runs, [&](const StepWork& run) { return run.source == "2048" && run.run.micro_batch < 16; });
    for (StepWork& run : runs)
      if (run.source == "2048") run.run.step *= 2;
    const DeviceFit fit = fit_device(figures(), runs, {.parameters = {"types.efficiency"}});
    REQUIRE(fit.sources.size() == 3);
    CHECK(fit.sources[0].source == "128");
    CHECK(fit.sources[2].in_fit.runs == 4);
    CHECK(fit.sources[2].left_out.mean == doctest::Approx(0.5).epsilon(0.05));
    CHECK(fit.sources[2].in_fit.mean < 0.8 * fit.sources[2].left_out.mean);
    CHECK(fit.sources[0].left_out.mean >= fit.sources[0].in_fit.mean);
  }

  TEST_CASE("too few runs, unknown or empty parameters and runs of two types are refused") {
    std::vector<StepWork> runs = runs_of(figures());
    const std::span<const StepWork> three(runs.data(), 3);
    CHECK(refusal([&] {
            fit_device(figures(), three, {.parameters = {"types.efficiency", "some.launch_s"}});
          }) ==
          "3 runs are too few for 2 parameters, two for each are needed; measure more, or name fewer with "
          "--parameters");
    CHECK(refusal([&] {
            fit_device(figures(), runs, {.parameters = {"speed"}});
          }).starts_with("unknown parameter \"speed\"; use some of types.efficiency, "));
    CHECK(refusal([&] { fit_device(figures(), runs, {.parameters = {"some.update_s"}}); }) ==
          "parameter some.update_s is 0 or missing in the document to start from; give it a value there that "
          "is about "
          "right");
    runs.back().run.dtype = DType::float32;
    runs.back().run.line = 9;
    CHECK(refusal([&] { fit_device(figures(), runs, {}); }) ==
          "line 9 is of float32, the first of bfloat16; fit one type after the other");
    CHECK(refusal([&] { fit_device(figures(), {}, {}); }) ==
          "there are no runs to fit to; give at least two per parameter");
  }
}

}  // namespace fit_device_test
