// Trainings on several ranks, which are threads here: messages, checkpoints and what differs from one process.
// That they have its bits, whatever is combined: promises_test.cpp.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/file.h"
#include "librun/checkpoint/checkpoint_folder.h"
#include "librun/checkpoint/weights.h"
#include "librun/drive/control_messages.h"
#include "librun/run.h"
#include "tests/librun/data_bytes.h"
#include "tests/librun/folder.h"
#include "tests/librun/models.h"
#include "tests/librun/rank_training.h"
#include "tests/librun/reference.h"
#include "tests/support/plans.h"
#include "tests/support/rank_cases.h"
#include "tests/support/torch_test.h"

namespace ranks_test {

using namespace pp;
namespace fs = std::filesystem;
using pp::test::Ending;
using pp::test::rank_options;
using pp::test::run_on;
using pp::test::ThreadPeers;
using pp::test::train;
using pp::test::Wires;

namespace {

void check_same(int ranks, const plan::Plan& plan, const run::RunOptions& options) {
  const pp::test::Run expected = pp::test::run_plan(plan, options), found = run_on(ranks, plan, options);
  CHECK(pp::test::first_difference(expected.tensors, found.tensors) == "");
  CHECK(found.report.step_losses == expected.report.step_losses);
  REQUIRE(found.report.epochs.size() == expected.report.epochs.size());
  for (std::size_t e = 0; e < found.report.epochs.size(); ++e)
    CHECK(found.report.epochs[e].test_loss == expected.report.epochs[e].test_loss);
  REQUIRE(found.report.workers.size() == plan.workers.size());
  for (std::size_t w = 0; w < plan.workers.size(); ++w) {
    CHECK(found.report.workers[w].peak_in_flight == expected.report.workers[w].peak_in_flight);
    CHECK(found.report.workers[w].sent_per_step == expected.report.workers[w].sent_per_step);
  }
  CHECK(found.report.op_times.size() == expected.report.op_times.size());
}

/// On three ranks, with checkpoints behind the fifth step and the last.
void train_seven_steps(const plan::Plan& plan, run::RunOptions options, const fs::path& checkpoint) {
  options.steps = 7;
  options.checkpoint = checkpoint;
  options.checkpoint_steps = 5;
  for (const Ending& ending : train(3, plan, options)) REQUIRE(ending.error == "");
}

}  // namespace

TEST_SUITE("librun/ranks") {
  TEST_CASE("a copy of shared weights on a rank without their owner is loaded as well") {
    const TestFolder folder;
    const plan::Plan plan = make_plan({.model = pp::test::shared_mlp(), .cuts = {3, 6}});
    run::RunOptions options = rank_options(plan);
    options.seed = 7;
    options.save_weights = folder.path() / "other.safetensors";
    pp::test::SilentObserver observer;
    test::run_checked(plan, options, observer);
    options.seed = 1;
    options.initial_weights = std::exchange(options.save_weights, {});
    check_same(3, plan, options);
  }

  // What is changed before it is sent, and what waits for a receive that comes behind it, shows here.
  TEST_CASE(
      "messages that are read at the last moment, and taken in the order of their receives: the same bits") {
    for (const char* const schedule :
         {"1f1b", "interleaved", "chimera", "zb-h1", "pipedream", "parameter-server"}) {
      CAPTURE(schedule);
      const auto spec = pp::test::spec_for(schedule, 4);
      REQUIRE(spec);
      const plan::Plan plan = make_plan(*spec);
      run::RunOptions options = rank_options(plan);
      options.clip_norm = plan.workers.front().program.stream || spec->schedule == "parameter-server"
                              ? std::nullopt
                              : std::optional(0.5);
      const pp::test::Run expected = pp::test::run_plan(plan, options);
      const TestFolder folder;
      options.save_weights = folder.path() / "weights.safetensors";
      Wires wires(4, /*late=*/true);
      for (const Ending& ending : train(4, plan, options, {}, &wires)) REQUIRE(ending.error == "");
      CHECK(pp::test::first_difference(expected.tensors, run::read_weights(options.save_weights)) == "");
    }
  }

  // Rank 0 speaks to ranks 1 to 8, of which the first passes it on to ranks 9 and 10.
  TEST_CASE("eleven ranks, some of which hear of rank 0 by another: the bits of one process") {
    std::vector<int> cuts;
    for (int stage = 1; stage < 11; ++stage) cuts.push_back(2 * stage);
    const plan::Plan plan = make_plan({.model = pp::test::mlp(11), .cuts = cuts});
    run::RunOptions options = rank_options(plan);
    options.clip_norm = 0.5;
    check_same(11, plan, options);
  }

  // Four micro-batches a step, one epoch of 12 steps.
  TEST_CASE("a rank sends rank 0 one message a step and one an evaluation") {
    const ModelGraph model = pp::test::mlp(4);
    for (const PlanSpec& spec :
         {PlanSpec{.model = model, .cuts = {4}},
          PlanSpec{.model = model, .cuts = {2, 4, 6}, .schedule = "interleaved"},
          PlanSpec{.model = model, .cuts = {4}, .replicas = {1, 2}, .schedule = "gpipe"}}) {
      CAPTURE(spec.schedule);
      const plan::Plan plan = make_plan(spec);
      Wires wires(2);
      pp::test::on_ranks(wires, [&](ThreadPeers& peers) {
        pp::test::SilentObserver observer;
        run::run_together(peers, plan, rank_options(plan), observer, [] { return false; });
        const auto sent = [&](run::ControlKind kind) {
          return peers.letters[static_cast<unsigned char>(kind)].load();
        };
        CHECK(sent(run::ControlKind::entry) == (peers.rank() == 1 ? 12 + 1 : 0));
      });
    }
  }

  TEST_CASE("workers stand where the plan's ranks say, where it names as many") {
    plan::Plan plan = make_plan({.model = pp::test::mlp(3), .cuts = {2, 4}});
    for (std::size_t w = 0; w < 3; ++w) plan.workers[w].rank = w == 1 ? 0 : 1;
    check_same(2, plan, rank_options(plan));
    pp::test::SilentObserver observer;
    test::run_checked(plan, rank_options(plan), observer);
    CHECK(std::ranges::count(observer.warnings,
                             "the plan is for 2 ranks and this process has all their workers; start it with "
                             "mpirun -n 2 pp-run ...") == 1);
  }

  TEST_CASE("an all-reduce sends each member's vector 2(q-1)/q times") {
    const plan::Plan plan = make_plan(
        {.model = pp::test::mlp(8), .replicas = {3}, .schedule = "data-parallel", .micro_batches = 3});
    run::RunOptions options = rank_options(plan);
    options.steps = 1;
    Wires wires(3);
    for (const Ending& ending : train(3, plan, options, {}, &wires)) REQUIRE(ending.error == "");
    // Each parameter's gradient begins at a multiple of 16 floats. fc0: 30 and 6 take 32 + 16, seven layers of
    // 36 and 6 take 48 + 16, the head's 18 and 3 take 32 + 16: 544 floats, of which each of 3 members sends
    // 2*2/3.
    CHECK(wires.sent() == 3 * 544 * 4 / 3 * sizeof(float));
  }

  // The skip's layer of 1 MiB is a bucket of its own; where a replica has no micro-batch, its share is zero.
  TEST_CASE("all-reduces beside the last backward, where the plan counts on them: the bits of one process") {
    for (PlanSpec spec :
         {PlanSpec{.model = pp::test::skip_mlp(512), .schedule = "data-parallel", .micro_batches = 2},
          PlanSpec{.model = pp::test::shared_mlp(), .cuts = {3}, .schedule = "gpipe"},
          PlanSpec{.model = pp::test::mlp(8), .cuts = {4}, .schedule = "pipedream", .micro_batches = 1}}) {
      spec.replicas.assign(spec.cuts.size() + 1, 2);
      if (spec.schedule == "data-parallel") spec.replicas = {3};
      spec.all_reduce_overlap = 0.5;
      const plan::Plan plan = make_plan(spec);
      CAPTURE(plan.model.name);
      CAPTURE(spec.schedule);
      run::RunOptions options = rank_options(plan);
      options.steps = 6;
      for (const int ranks : {2, static_cast<int>(plan.workers.size())}) check_same(ranks, plan, options);
      if (plan.schedule.weight_policy != plan::WeightPolicy::flush) continue;
      options.accumulate = 2;
      check_same(static_cast<int>(plan.workers.size()), plan, options);
    }
  }

  // One step of three replicas; the first AR to begin finds what went before it.
  TEST_CASE("an all-reduce that the plan overlaps has begun before its AR, any other has not") {
    plan::Plan plan = make_plan(
        {.model = pp::test::mlp(8), .replicas = {3}, .schedule = "data-parallel", .micro_batches = 3});
    for (const double overlap : {0.0, 1.0}) {
      plan.predicted.all_reduce_overlap = overlap;
      run::RunOptions options = rank_options(plan);
      options.steps = 1;
      options.evaluate = false;
      Wires wires(3);
      std::atomic<bool> first = true;
      std::atomic<std::size_t> sent = 0;
      options.before_op = [&](std::int64_t, WorkerId, const plan::Op& op) {
        if (op.kind == plan::OpKind::all_reduce && first.exchange(false)) sent = wires.sent();
      };
      for (const Ending& ending : train(3, plan, options, {}, &wires)) REQUIRE(ending.error == "");
      CHECK((sent > 0) == (overlap > 0));
      CHECK(wires.sent() == 3 * 544 * 4 / 3 * sizeof(float));
    }
  }

  // Three stages with adam. What a rank writes is what its workers have: two copies of nothing, nothing
  // missing.
  TEST_CASE("each rank writes its part of a checkpoint; any ranks and plans go on from it") {
    const TestFolder folder;
    const fs::path ck = folder.path() / "ck";
    const plan::Plan plan =
        make_plan({.model = pp::test::residual_net(), .cuts = {4, 9}, .optimizer = OptimizerName::adam});
    run::RunOptions options = rank_options(plan);
    const pp::test::Run whole = pp::test::run_plan(plan, options);
    train_seven_steps(plan, options, ck);

    const run::FoundCheckpoint found = run::find_checkpoint(ck);
    CHECK(found.folder == ck / "step-7");
    std::vector<std::string> files, names;
    for (const run::CheckpointPart& part : found.manifest.parts) files.push_back(part.file);
    CHECK(files == std::vector<std::string>{"weights-0.safetensors", "optimizer-0.safetensors",
                                            "weights-1.safetensors", "optimizer-1.safetensors",
                                            "weights-2.safetensors", "optimizer-2.safetensors"});
    for (const int rank : {0, 1, 2}) {
      for (const auto& [name, tensor] :
           run::read_weights(found.folder / files[2 * static_cast<std::size_t>(rank)]))
        names.push_back(name);
    }
    std::vector<std::string> expected;
    for (const auto& [name, tensor] : whole.tensors) expected.push_back(name);
    CHECK(names == expected);

    options.resume = ck;
    CHECK(pp::test::first_difference(whole.tensors, run_on(2, plan, options).tensors) == "");
    const plan::Plan other =
        make_plan({.model = pp::test::residual_net(), .cuts = {6}, .optimizer = OptimizerName::adam});
    CHECK(pp::test::first_difference(whole.tensors, pp::test::run_plan(other, options).tensors) == "");
  }

  TEST_CASE("a part of one rank that is damaged: all go on from the checkpoint before") {
    const TestFolder folder;
    const fs::path ck = folder.path() / "ck";
    const plan::Plan plan = make_plan({.model = pp::test::mlp(3), .cuts = {2, 4}});
    run::RunOptions options = rank_options(plan);
    const pp::test::Run whole = pp::test::run_plan(plan, options);
    train_seven_steps(plan, options, ck);
    std::string bytes = read_file(ck / "step-7/weights-1.safetensors");
    bytes.back() ^= 1;
    write_file(ck / "step-7/weights-1.safetensors", bytes);
    options.resume = ck;
    for (const int ranks : {2, 3}) {
      const pp::test::Run found = run_on(ranks, plan, options);
      CHECK(found.report.resumed->step == 5);
      CHECK(pp::test::first_difference(whole.tensors, found.tensors) == "");
    }
  }

  // A rank may see a directory of a file server as it was before the last checkpoint.
  TEST_CASE("ranks that see other checkpoints go on from the newest that one of them sees and all can open") {
    const TestFolder folder;
    const fs::path ck = folder.path() / "ck", late = folder.path() / "late";
    const plan::Plan plan = make_plan({.model = pp::test::mlp(3), .cuts = {2, 4}});
    run::RunOptions options = rank_options(plan);
    const pp::test::Run whole = pp::test::run_plan(plan, options);
    train_seven_steps(plan, options, ck);
    for (const int behind : {0, 2}) {
      CAPTURE(behind);
      fs::remove_all(late);
      fs::copy(ck, late, fs::copy_options::recursive);
      fs::rename(late / "step-7", folder.path() / "step-7");
      options.save_weights = folder.path() / "weights.safetensors";
      std::jthread server([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        fs::rename(folder.path() / "step-7", late / "step-7");
      });
      const auto endings = pp::test::train(3, plan, options, [&](ThreadPeers& peers, auto&, auto& o) {
        o.resume = peers.rank() == behind ? late : ck;
      });
      REQUIRE(endings[0].error == "");
      CHECK(endings[0].report->resumed->step == 7);
      CHECK(pp::test::first_difference(whole.tensors, run::read_weights(options.save_weights)) == "");
    }
  }

  TEST_CASE("a checkpoint folder that ranks do not share ends the run, which says so") {
    const TestFolder folder;
    const plan::Plan plan = make_plan({.model = pp::test::mlp(2), .cuts = {2}});
    run::RunOptions options = rank_options(plan);
    options.checkpoint = folder.path() / "ck";
    const auto endings = train(2, plan, options, [&](ThreadPeers& peers, auto&, run::RunOptions& o) {
      if (peers.rank() == 1) fs::create_directory(o.checkpoint = folder.path() / "elsewhere");
    });
    CHECK(endings[0].error.find("weights-1.safetensors: is not here as it was written; ranks on several hosts "
                                "need a folder for checkpoints that all of them share") != std::string::npos);
  }

  // Two addends have one sum; the library's order counts from three on.
  TEST_CASE(
      "--all-reduce fast adds by the library: with two replicas the bits of one process, with four to "
      "rounding") {
    for (const int replicas : {2, 4}) {
      const plan::Plan plan = make_plan({.model = pp::test::mlp(2), .cuts = {2}, .replicas = {replicas, 1}});
      run::RunOptions options = rank_options(plan);
      const pp::test::Run expected = pp::test::run_plan(plan, options);
      options.all_reduce = run::AllReduce::fast;
      std::atomic<int> sums = 0;
      const TestFolder folder;
      options.save_weights = folder.path() / "weights.safetensors";
      Wires wires(replicas + 1);
      pp::test::on_ranks(wires, [&](ThreadPeers& peers) {
        pp::test::SilentObserver observer;
        run::run_together(peers, plan, options, observer, [] { return false; });
        sums += peers.sums;
      });
      CHECK(sums == 12 * replicas);  // 12 steps; the second stage has no replicas
      const auto found = run::read_weights(options.save_weights);
      REQUIRE(found.size() == expected.tensors.size());
      if (replicas == 2) CHECK(pp::test::first_difference(expected.tensors, found) == "");
      for (std::size_t i = 0; i < found.size(); ++i)
        CHECK(found[i].second.allclose(expected.tensors[i].second, 1e-5, 1e-6));
    }
  }
}

}  // namespace ranks_test
