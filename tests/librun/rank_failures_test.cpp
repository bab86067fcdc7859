// What ends a training on several ranks, which are threads here, or keeps it from beginning: a rank of another
// mind, one that fails, is silent or is interrupted.
#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "librun/run.h"
#include "tests/librun/data_bytes.h"
#include "tests/librun/folder.h"
#include "tests/librun/models.h"
#include "tests/librun/rank_training.h"
#include "tests/librun/reference.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace rank_failures_test {

using namespace pp;
namespace fs = std::filesystem;
using pp::test::Change;
using pp::test::rank_options;
using pp::test::ThreadPeers;
using pp::test::train;
using pp::test::Wires;

namespace {

/// Labels of class 1 for inputs of 0.5, of which one in the middle is `middle`, in FOLDER/name.
void write_samples(const TestFolder& folder, const std::string& name, const plan::Plan& plan,
                   std::int64_t samples, float middle) {
  const auto width = plan.model.inputs.front().type.shape.front();
  std::vector<float> x(static_cast<std::size_t>(samples * width), 0.5F);
  x[x.size() / 2] = middle;
  const std::vector<std::int64_t> y(static_cast<std::size_t>(samples), 1);
  const std::int64_t inputs = 4 * samples * width;
  const Json header{
      {"x", {{"dtype", "F32"}, {"shape", {samples, width}}, {"data_offsets", {0, inputs}}}},
      {"y", {{"dtype", "I64"}, {"shape", {samples}}, {"data_offsets", {inputs, inputs + 8 * samples}}}}};
  fs::create_directory(folder.path() / name);
  folder.write(name + "/train.safetensors",
               pp::test::safetensors_bytes(header.dump(), pp::test::bytes_of(x) + pp::test::bytes_of(y)));
}

/// By all threads of this process so far, from files.
std::int64_t bytes_read() {
  std::ifstream file("/proc/self/io");
  std::string key;
  std::int64_t value = 0;
  while (file >> key >> value && key != "rchar:") {
  }
  return value;
}

}  // namespace

TEST_SUITE("librun/rank_failures") {
  TEST_CASE("a rank that cannot make its workers ends all, and rank 0 says why") {
    const plan::Plan plan = make_plan({.model = pp::test::mlp(3), .cuts = {2, 4}});
    const auto endings = train(3, plan, rank_options(plan), [](ThreadPeers& peers, auto&, auto&) {
      if (peers.rank() == 1) peers.tags = 2;
    });
    CHECK(endings[0].error.starts_with("rank 1: the message-passing library has tags up to 2, too few for "));
    for (const std::size_t r : {1, 2}) CHECK(endings[r].said_elsewhere);
  }

  TEST_CASE("more ranks than workers are refused with the command that fits") {
    const auto endings = train(3, make_plan({.model = pp::test::mlp(2), .cuts = {2}}), {});
    CHECK(endings[0].error == "3 ranks for 2 workers of the plan; start at most 2: mpirun -n 2 pp-run ...");
    CHECK_FALSE(endings[0].said_elsewhere);
    for (const std::size_t r : {1, 2}) CHECK(endings[r].said_elsewhere);
  }

  TEST_CASE("ranks of another mind are refused before any work, by name") {
    const plan::Plan plan = make_plan({.model = pp::test::mlp(2), .cuts = {2}});
    const run::RunOptions options = rank_options(plan);
    const auto refusal = [&](const Change& change) {
      const auto endings = train(2, plan, options, [&](ThreadPeers& peers, auto& p, auto& o) {
        if (peers.rank() == 1) change(peers, p, o);
      });
      CHECK(endings[1].said_elsewhere);
      CHECK_FALSE(endings[0].said_elsewhere);
      return endings[0].error;
    };
    const auto has = [](const std::string& text, const std::string& part) {
      return text.find(part) != std::string::npos;
    };
    CHECK(
        has(refusal([](auto&, auto&, run::RunOptions& o) { o.learning_rate = 0.5; }),
            ": option learning_rate is 0.5, on rank 0 0.05; start all ranks with the same pp-run, plan, data, "
            "weights and options"));
    // One option more on a rank, which stands before others in their order.
    CHECK(has(refusal([](auto&, auto&, run::RunOptions& o) { o.clip_norm = 1; }),
              ": option clip_norm is 1.0, on rank 0 not given;"));
    CHECK(has(refusal([](ThreadPeers&, auto&, run::RunOptions& o) { o.warmup_steps = 2; }),
              ": option warmup_steps is 2, on rank 0 not given;"));
    CHECK(has(refusal([](auto&, auto&, run::RunOptions& o) { o.seed = 8; }), ": the seed is 8, on rank 0 7;"));
    CHECK(has(refusal([](auto&, plan::Plan& p, auto&) { p.training.optimizer = OptimizerName::adam; }),
              ": the plan is sha256:"));
    CHECK(has(refusal([](auto&, auto&, run::RunOptions& o) { o.data = "nowhere"; }), ": nowhere: "));
  }

  TEST_CASE("ranks that begin with other weights, or from other checkpoints, are refused with both files") {
    const TestFolder folder;
    const plan::Plan plan = make_plan({.model = pp::test::mlp(2), .cuts = {2}});
    const auto weights_of = [&](std::uint64_t seed, const std::string& name) {
      run::RunOptions options = rank_options(plan);
      options.seed = seed;
      options.steps = 4;
      options.save_weights = folder.path() / (name + ".safetensors");
      options.checkpoint = folder.path() / name;
      pp::test::SilentObserver observer;
      test::run_checked(plan, options, observer);
    };
    weights_of(7, "a");
    weights_of(8, "b");
    fs::copy_file(folder.path() / "a.safetensors", folder.path() / "copy.safetensors");
    const auto ending = [&](const auto& change) {
      const auto endings = train(2, plan, rank_options(plan),
                                 [&](ThreadPeers& peers, auto&, auto& o) { change(peers.rank(), o); });
      CHECK(endings[1].said_elsewhere == !endings[0].error.empty());
      return endings[0].error;
    };
    const std::string path = folder.path().string();
    const auto begin_with = [&](const std::string& second) {
      return ending([&](int rank, run::RunOptions& o) {
        o.initial_weights = path + "/" + (rank == 0 ? "a.safetensors" : second);
      });
    };
    const std::string other = begin_with("b.safetensors");
    CHECK(other.find("the state that the training begins with is " + path + "/b.safetensors (sha256:") !=
          std::string::npos);
    CHECK(other.find("), on rank 0 " + path + "/a.safetensors (sha256:") != std::string::npos);
    CHECK(begin_with("copy.safetensors") == "");
    const std::string resumed =
        ending([&](int rank, run::RunOptions& o) { o.resume = folder.path() / (rank == 0 ? "a" : "b"); });
    CHECK(resumed.find("begins with is " + path + "/b/step-4 (sha256:") != std::string::npos);
    const std::string drawn = ending([&](int rank, run::RunOptions& o) {
      if (rank == 1) o.initial_weights = folder.path() / "a.safetensors";
    });
    CHECK(drawn.find("on rank 0 drawn from the seed;") != std::string::npos);
  }

  // 24 samples of x [width] and y; the sample in the middle differs: count, first and last sample do not.
  TEST_CASE("ranks whose data differ within are refused before they train, with rank and samples") {
    const TestFolder folder;
    const plan::Plan plan = make_plan({.model = pp::test::mlp(2), .cuts = {2}});
    for (const float which : {0.5F, 1.5F}) write_samples(folder, which == 0.5F ? "0" : "1", plan, 24, which);
    for (const int second : {0, 1}) {
      const auto endings = train(2, plan, rank_options(plan), [&](ThreadPeers& peers, auto&, auto& o) {
        o.data = (folder.path() / std::to_string(peers.rank() == 0 ? 0 : second)).string();
      });
      if (second == 0) CHECK(endings[0].error == "");
      if (second == 0) continue;
      CHECK(endings[0].error.starts_with("rank 1 on here: the training data is 24 samples sha256:"));
      CHECK(endings[0].error.find(", on rank 0 24 samples sha256:") != std::string::npos);
      CHECK(endings[1].said_elsewhere);
    }
  }

  // The input has 1,024 of a sample's 1,032 bytes, and rank 0 alone uses it.
  TEST_CASE("a rank reads of the data what its workers need, and some samples to compare") {
    const TestFolder folder;
    ModelGraph model = pp::test::mlp(2);
    model.inputs.front().type.shape = {256};
    const plan::Plan plan = make_plan({.model = model, .cuts = {2}, .mini_batch = 256});
    constexpr std::int64_t kSamples = 8'000;
    write_samples(folder, "data", plan, kSamples, 0.5F);
    run::RunOptions options = rank_options(plan);
    options.data = (folder.path() / "data").string();
    options.steps.reset();
    options.epochs = 1;
    const std::int64_t before = bytes_read();
    CHECK(train(2, plan, options)[0].error == "");
    CHECK(bytes_read() - before < 1024 * kSamples * 3 / 2);
  }

  TEST_CASE("a worker that fails on any rank ends all, and rank 0 names rank, worker, stage and operation") {
    const plan::Plan plan = make_plan({.model = pp::test::mlp(3), .cuts = {2, 4}});
    for (const int where : {0, 1, 2}) {
      run::RunOptions options = rank_options(plan);
      options.before_op = [&](std::int64_t step, WorkerId worker, const plan::Op& op) {
        if (step == 2 && number(worker) == where && op.kind == plan::OpKind::backward)
          throw std::runtime_error("the disk is on fire");
      };
      const auto endings = train(3, plan, options);
      const std::string text = std::to_string(where);
      CHECK(endings[0].error == (where == 0 ? "" : "rank " + text + ": ") + "worker " + text + ": stage " +
                                    text + ": B" + text + ".0: the disk is on fire");
      for (const std::size_t r : {1, 2}) CHECK(endings[r].said_elsewhere);
    }
  }

  TEST_CASE("a rank that is not heard of for the stall timeout ends the run, which names it") {
    const plan::Plan plan = make_plan({.model = pp::test::mlp(3), .cuts = {2, 4}});
    run::RunOptions options = rank_options(plan);
    options.stall_timeout = Seconds(2);
    std::atomic<ThreadPeers*> silent = nullptr;
    options.before_op = [&](std::int64_t step, WorkerId worker, const plan::Op&) {
      if (step == 3 && number(worker) == 1) silent.load()->mute = true;
    };
    options.steps = 1'000'000;
    const auto endings = train(3, plan, options, [&](ThreadPeers& peers, auto&, auto&) {
      if (peers.rank() == 1) silent = &peers;
    });
    CHECK(
        endings[0].error ==
        "rank 1 (workers 1) has been silent for 2 s: it hangs, was stopped, or cannot be reached; look at its "
        "host");
    CHECK(endings[2].said_elsewhere);
  }

  TEST_CASE("who interrupts any rank ends the run after the steps in flight, with the same report") {
    const plan::Plan plan = make_plan({.model = pp::test::mlp(3), .cuts = {2, 4}});
    run::RunOptions options = rank_options(plan);
    options.steps = 1'000'000;
    options.evaluate = false;
    std::atomic<int> begun = 0;
    options.before_op = [&](std::int64_t step, WorkerId, const plan::Op&) { begun = static_cast<int>(step); };
    Wires wires(3);
    std::optional<run::RunReport> report;
    pp::test::on_ranks(wires, [&](ThreadPeers& peers) {
      pp::test::SilentObserver observer;
      auto mine =
          run::run_together(peers, plan, options, observer, [&] { return peers.rank() == 2 && begun > 20; });
      if (peers.rank() == 0) report = std::move(mine);
    });
    CHECK(report->exit_reason == "interrupted");
    CHECK(report->step_losses.size() > 20);
  }
}

}  // namespace rank_failures_test
