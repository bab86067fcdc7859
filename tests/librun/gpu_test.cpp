// Plans on CUDA devices: what equality_test.cpp and replica_test.cpp say of CPU devices. One device is enough:
// its workers have a stream each.
#include <stdexcept>

#include "libprofile/core/error.h"
#include "libprofile/model/families/families.h"
#include "librun/checkpoint/weights.h"
#include "librun/infer.h"
#include "tests/librun/folder.h"
#include "tests/librun/gpu_plans.h"
#include "tests/librun/imported_models.h"
#include "tests/librun/infer/silent.h"
#include "tests/librun/models.h"
#include "tests/librun/reference.h"
#include "tests/librun/synthetic_options.h"
#include "tests/support/thread_peers.h"
#include "tests/support/torch_test.h"

#include "tests/support/gpu.h"

namespace gpu_test {

using namespace pp;
using pp::test::plan_on_cuda;
using pp::test::Sharing;

namespace {

run::RunOptions short_run() {
  run::RunOptions options = pp::test::synthetic_options(3);
  return options;
}

bool cuda_is_imitated() { return profile::cuda_device_name(0).starts_with("Imitation"); }

pp::test::Run run_on_cuda(const PlanSpec& spec, Sharing sharing = Sharing::one_device,
                          const run::RunOptions& options = short_run()) {
  return pp::test::run_plan(plan_on_cuda(spec, sharing), options);
}

/// What the plan computes from synthetic data, with weights drawn from the seed.
pp::test::NamedTensors infer_on_cuda(const PlanSpec& spec, run::InferOptions options) {
  const TestFolder folder;
  options.data = "synthetic";
  options.synthetic_samples = 10;
  options.random_weights = true;
  options.outputs = folder.path() / "outputs.safetensors";
  pp::test::SilentInference observer;
  run::infer(plan_on_cuda(spec), options, observer);
  return run::read_weights(options.outputs);
}

/// Worker w on rank w; ranks are threads.
pp::test::NamedTensors weights_of_ranks(const PlanSpec& spec, Sharing sharing, run::RunOptions options) {
  const TestFolder folder;
  options.save_weights = folder.path() / "weights.safetensors";
  const plan::Plan plan = plan_on_cuda(spec, sharing);
  pp::test::Wires wires(static_cast<int>(plan.workers.size()));
  pp::test::on_ranks(wires, [&](pp::test::ThreadPeers& peers) {
    pp::test::SilentObserver observer;
    run::run_together(peers, plan, options, observer, [] { return false; });
  });
  return run::read_weights(options.save_weights);
}

/// The same bits in weights, running statistics and losses, whole and cut.
void check_cuts(PlanSpec spec, const std::vector<std::vector<int>>& cuts, Sharing sharing = Sharing::one_device,
                const run::RunOptions& options = short_run()) {
  spec.cuts = {};
  const pp::test::Run whole = run_on_cuda(spec, Sharing::one_device, options);
  for (const std::vector<int>& cut : cuts) {
    spec.cuts = cut;
    const pp::test::Run found = run_on_cuda(spec, sharing, options);
    CHECK(pp::test::first_difference(whole.tensors, found.tensors) == "");
    CHECK(found.report.step_losses == whole.report.step_losses);
  }
}

PlanSpec residual(const std::string& schedule) {
  return {.model = pp::test::residual_net(), .schedule = schedule};
}

}  // namespace

TEST_SUITE("gpu/librun") {
  TEST_CASE("two workers and more on one device give the bits of one stage, by any schedule") {
    PP_NEEDS_CUDA(1);
    // With {4, 9} the middle stage hands a gradient on to the first one as it came.
    for (const char* schedule : {"gpipe", "1f1b"}) check_cuts(residual(schedule), {{4}, {3, 8}, {4, 9}});
    const pp::test::Run whole = run_on_cuda(residual("1f1b"));
    for (const std::string schedule : {"zb-h1", "zb-h2", "interleaved", "zb-v", "dualpipe-v"}) {
      INFO(schedule);
      PlanSpec spec = residual(schedule);
      spec.cuts = {2, 4, 8};
      CHECK(pp::test::first_difference(whole.tensors, run_on_cuda(spec).tensors) == "");
    }
    check_cuts({.model = model::build_family(
                    "transformer:layers=2,width=16,heads=2,vocabulary=20,sequence=8,dropout=0.2,tied=1"),
                .recompute = {plan::Recompute::always}},
               {{3}});
    check_cuts({.model = model::build_family(
                    "transformer:layers=2,width=16,heads=2,vocabulary=20,sequence=8,dropout=0.2")},
               {{2}, {1, 3}});
  }

  // Where libraries choose among kernels: by the alignment of the weights, which another stage must not change,
  // and in attention's backward, whose fast kernels add in any order.
  TEST_CASE("layers of real sizes give the bits of one stage") {
    PP_NEEDS_CUDA(1);
    run::RunOptions options = short_run();
    options.synthetic_samples = 256;
    options.steps = cuda_is_imitated() ? 2 : 24;
    check_cuts(
        {.model = model::build_family("vgg11:image=32,classes=10,width=200,dropout=0"), .mini_batch = 64},
        {{7}, {21, 24}}, Sharing::one_device, options);
    check_cuts({.model = model::build_family("lenet5"), .mini_batch = 64}, {{4}, {8}}, Sharing::one_device,
               options);
    check_cuts({.model = model::build_family(
                    "transformer:layers=2,width=132,heads=4,vocabulary=250,sequence=96,dropout=0"),
                .mini_batch = 16},
               {{6}, {2, 13}}, Sharing::one_device, options);
  }

  // Sequences of several blocks of keys, whose shares of a query's gradient fast kernels add in any order; a
  // vocabulary whose rows are unaligned in half types.
  TEST_CASE("attention over long sequences gives the bits of one stage, and of the same stage again") {
    PP_NEEDS_CUDA(1);
    run::RunOptions options = short_run();
    options.synthetic_samples = 32;
    options.steps = cuda_is_imitated() ? 1 : 12;
    const std::int64_t length = cuda_is_imitated() ? 32 : 640;
    const std::string common = ",vocabulary=515,sequence=" + std::to_string(length);
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      for (const std::string family :
           {"transformer:layers=2,width=128,heads=2,dropout=0",
            "llama:layers=2,width=128,heads=4,kv_heads=2,head_width=32,hidden=256"}) {
        INFO(family, " ", name_of(dtype));
        PlanSpec spec{.model = model::build_family(family + common), .mini_batch = 8};
        spec.dtype = dtype;
        const pp::test::Run whole = run_on_cuda(spec, Sharing::one_device, options);
        CHECK(pp::test::first_difference(whole.tensors,
                                         run_on_cuda(spec, Sharing::one_device, options).tensors) == "");
        check_cuts(spec, {{6}, {4, 11}}, Sharing::one_device, options);
        spec.recompute = {plan::Recompute::always};
        CHECK(pp::test::first_difference(whole.tensors,
                                         run_on_cuda(spec, Sharing::one_device, options).tensors) == "");
      }
    }
  }

  TEST_CASE("weights on the host give the bits of one stage, on one device and on two") {
    PP_NEEDS_CUDA(2);
    const pp::test::Run whole = run_on_cuda(residual("1f1b"));
    for (const bool prefetch : {false, true}) {
      PlanSpec spec = residual("harmony-pp");
      spec.cuts = {2, 4, 8};
      spec.chunks = 2;
      spec.prefetch = prefetch;
      CHECK(pp::test::first_difference(whole.tensors, run_on_cuda(spec).tensors) == "");
      CHECK(pp::test::first_difference(whole.tensors, run_on_cuda(spec, Sharing::device_each).tensors) == "");
    }
  }

  TEST_CASE("versions and copies of weights, exact sums and replicas are those of the CPU to rounding") {
    PP_NEEDS_CUDA(1);
    for (PlanSpec spec :
         {PlanSpec{.model = pp::test::mlp(3), .cuts = {3}, .schedule = "pipedream", .micro_batches = 1},
          PlanSpec{.model = pp::test::mlp(3), .cuts = {3}, .schedule = "chimera"},
          PlanSpec{.model = pp::test::mlp(3), .cuts = {3}},
          PlanSpec{.model = pp::test::mlp(3), .replicas = {2}}}) {
      INFO(spec.schedule);
      spec.dtype = DType::float64;
      const pp::test::Run cpu = pp::test::run_plan(make_plan(spec), short_run());
      CHECK(pp::test::largest_difference(cpu.tensors, run_on_cuda(spec).tensors) < 1e-10);
    }
  }

  // Ranks on one GPU send by their hosts, those with one each by NCCL, which the imitation does not have.
  TEST_CASE("ranks give the bits of one process: cut, with replicas, under autocast, by CUDA graphs") {
    PP_NEEDS_CUDA(1);
    std::vector<Sharing> sharings{Sharing::one_device};
    if (profile::cuda_device_count() > 1 && !cuda_is_imitated()) sharings.push_back(Sharing::device_each);
    PlanSpec cut = residual("1f1b"), replicated{.model = pp::test::mlp(3), .replicas = {2}};
    cut.cuts = {4};
    PlanSpec overlapped = replicated;
    overlapped.all_reduce_overlap = 1;
    run::RunOptions half = short_run();
    half.autocast = Autocast::bfloat16;
    run::RunOptions recorded = short_run();
    recorded.cuda_graphs = true;
    for (const Sharing sharing : sharings) {
      for (const PlanSpec& spec : {cut, replicated, overlapped}) {
        const pp::test::NamedTensors one = run_on_cuda(spec).tensors;
        CHECK(pp::test::first_difference(one, weights_of_ranks(spec, sharing, short_run())) == "");
        CHECK(pp::test::first_difference(one, weights_of_ranks(spec, sharing, recorded)) == "");
      }
      CHECK(pp::test::first_difference(run_on_cuda(cut, Sharing::one_device, half).tensors,
                                       weights_of_ranks(cut, sharing, half)) == "");
    }
  }

  TEST_CASE("waiting after every operation changes no bit") {
    PP_NEEDS_CUDA(1);
    PlanSpec spec = residual("1f1b");
    spec.cuts = {4, 9};
    run::RunOptions waiting = short_run();
    waiting.wait_each_operation = true;
    const pp::test::Run ahead = run_on_cuda(spec), behind = run_on_cuda(spec, Sharing::one_device, waiting);
    for (const run::WorkerReport& worker : ahead.report.workers) {
      CHECK(worker.busy > Seconds(0));
      CHECK(worker.weights > Bytes(0));
    }
    CHECK(ahead.report.workers[0].peak > Bytes(0));
    CHECK(pp::test::first_difference(ahead.tensors, behind.tensors) == "");
    CHECK(ahead.report.step_losses == behind.report.step_losses);
    CHECK(ahead.report.workers[0].peak == behind.report.workers[0].peak);
  }

  TEST_CASE("norms, losses and tests are decided by what the device has computed, however the model is cut") {
    PP_NEEDS_CUDA(1);
    run::RunOptions options = short_run();
    options.clip_norm = 0.5;
    options.on_nan = run::OnNan::skip;
    options.steps.reset();
    options.epochs = 2;
    PlanSpec spec = residual("1f1b");
    const pp::test::Run whole = run_on_cuda(spec, Sharing::one_device, options);
    spec.cuts = {4};
    const pp::test::Run cut = run_on_cuda(spec, Sharing::one_device, options);
    CHECK(pp::test::first_difference(whole.tensors, cut.tensors) == "");
    REQUIRE(cut.report.epochs.size() == 2);
    CHECK(cut.report.epochs[1].test_loss == whole.report.epochs[1].test_loss);
    CHECK(cut.report.epochs[1].test_accuracy == whole.report.epochs[1].test_accuracy);
  }

  TEST_CASE("replicas bring the sums of batch norm together, on one device and on two") {
    PP_NEEDS_CUDA(2);
    PlanSpec spec = residual("1f1b");
    spec.dtype = DType::float64;
    const pp::test::Run whole = run_on_cuda(spec);
    spec.replicas = {2};
    for (const Sharing sharing : {Sharing::one_device, Sharing::device_each})
      CHECK(pp::test::largest_difference(whole.tensors, run_on_cuda(spec, sharing).tensors) < 1e-10);
  }

  TEST_CASE("float16 with its scale: steps are skipped and the bits are those of one stage") {
    PP_NEEDS_CUDA(1);
    // An error of 2 has the gradient 1, of which 2^16 is more than float16 holds: the first steps are skipped.
    PlanSpec spec{.model = pp::test::regression(), .mini_batch = 2, .micro_batches = 2};
    run::RunOptions options = short_run();
    options.steps = 12;
    options.autocast = Autocast::float16;
    const pp::test::Run whole = run_on_cuda(spec, Sharing::one_device, options);
    CHECK(whole.report.skipped_steps > 0);
    CHECK(whole.report.skipped_steps < 12);
    for (const std::string schedule : {"1f1b", "zb-h1"}) {
      INFO(schedule);
      spec.schedule = schedule;
      spec.cuts = {2};
      const pp::test::Run cut = run_on_cuda(spec, Sharing::one_device, options);
      CHECK(cut.report.skipped_steps == whole.report.skipped_steps);
      CHECK(pp::test::first_difference(whole.tensors, cut.tensors) == "");
    }
  }

  TEST_CASE("inference: outputs of every cut, and tokens, are those of one stage") {
    PP_NEEDS_CUDA(1);
    PlanSpec images{.model = pp::test::residual_net()};
    run::InferOptions options;
    options.micro_batch = 3;  // the last pass has one row
    const auto whole = infer_on_cuda(images, options);
    for (const std::vector<int>& cuts : {std::vector<int>{4}, {3, 8}}) {
      images.cuts = cuts;
      CHECK(pp::test::first_difference(whole, infer_on_cuda(images, options)) == "");
    }
    PlanSpec text{.model =
                      model::build_family("transformer:layers=2,width=8,heads=2,vocabulary=19,sequence=9")};
    options.generation = run::GenerationOptions{.new_tokens = 5, .prompt_length = 3};
    const auto tokens = infer_on_cuda(text, options);
    text.cuts = {4, 12};
    CHECK(pp::test::first_difference(tokens, infer_on_cuda(text, options)) == "");
  }

  TEST_CASE("imported graphs and calls of LibTorch give the bits of one stage, in training and inference") {
    PP_NEEDS_CUDA(1);
    run::InferOptions options;
    options.micro_batch = 3;
    for (PlanSpec spec : {PlanSpec{.model = pp::test::imported_residual()},
                          PlanSpec{.model = pp::test::imported_attention()}}) {
      CAPTURE(spec.model.name);
      check_cuts(spec, {{2}, {1, 4}});
      const auto whole = infer_on_cuda(spec, options);
      spec.cuts = {4};
      CHECK(pp::test::first_difference(whole, infer_on_cuda(spec, options)) == "");
    }
  }

  TEST_CASE("a failure while the host runs ahead ends the run and names the operation") {
    PP_NEEDS_CUDA(1);
    PlanSpec spec = residual("1f1b");
    spec.cuts = {4};
    run::RunOptions options = short_run();
    options.before_op = [](std::int64_t step, WorkerId, const plan::Op& op) {
      if (step == 1 && plan::to_text(op) == "B1.2") throw std::runtime_error("lost");
    };
    CHECK_THROWS_WITH_AS(run_on_cuda(spec, Sharing::one_device, options), "worker 1: stage 1: B1.2: lost",
                         Error);
  }

  TEST_CASE("stages on two devices give the bits of one stage") {
    PP_NEEDS_CUDA(2);
    check_cuts(residual("1f1b"), {{4}, {9}}, Sharing::device_each);
    // With {4, 9} the middle stage hands a gradient on as it came, from one device to the other and back.
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1"})
      check_cuts(residual(schedule), {{3, 8}, {4, 9}}, Sharing::two_devices);
  }
}

}  // namespace gpu_test
