#include <limits>
#include <nlohmann/json.hpp>

#include "libprofile/core/error.h"
#include "librun/infer/report.h"
#include "librun/report/report.h"
#include "tests/support/doctest.h"
#include "tests/support/plans.h"
#include "tests/support/small_model.h"

namespace report_json_test {

using namespace pp;
using namespace pp::run;

namespace {

/// Two stages on two workers.
plan::Plan small_plan() { return make_plan({.model = pp::test::small_model(), .cuts = {1}}); }

RunReport full_report() {
  RunReport report;
  report.plan = small_plan();
  report.context = {{"pp", "0.1"}};
  report.plan_hash = "sha256:00";
  report.settings = {{"data", std::string("synthetic")},
                     {"learning_rate", 0.05},
                     {"momentum", 1.0},
                     {"epochs", std::int64_t{3}},
                     {"shuffle", true}};
  report.exit_reason = "completed";
  report.steps = 2;
  report.skipped_steps = 1;
  report.seed = 0xffffffffffffffffu;
  report.step = Seconds(0.25);
  report.samples_per_s = 32;
  report.bubble_fraction = 0.125;
  report.step_losses = {2.5, -0.5};
  report.epochs = {{0, 1.5, 1.25, 0.5, 100, 1, Seconds(2), Seconds(0.5)},
                   {1, 1.0, std::nullopt, std::nullopt, 90, 2, Seconds(4)}};
  report.evaluations = {{0, 1, 1.25, 0.5, Seconds(2), Seconds(0.5)}, {1, 2, -1.5, {}, Seconds(4), Seconds(1)}};
  report.best = BestReport{1, 1.25, 3, "ck/step-1"};
  report.workers = {{WorkerId{0}, Seconds(0.2), 0.2, Bytes(9), Bytes(1), Bytes(2), Bytes(3), Bytes(4), Bytes(5),
                     6, 7, Bytes(8)},
                    {}};
  report.workers[1].id = WorkerId{1};
  report.workers[1].graphs = GraphCount{.recorded = 2, .replayed = 40, .bytes = Bytes(4096)};
  report.op_times = {
      {plan::OpKind::backward, StageId{1}, 8, Seconds(0.02), Seconds(0.01), {Seconds(0.01), Seconds(0.03)}}};
  report.history.add(Seconds(0.25),
                     std::vector<StepFigures>{{Seconds(0.2), Bytes(9)}, {Seconds(0.1), Bytes(4)}});
  report.history.add(Seconds(0.5),
                     std::vector<StepFigures>{{Seconds(0.2), Bytes(8)}, {Seconds(0.1), Bytes(5)}});
  const plan::Op op{plan::OpKind::forward, StageId{0}, 3};
  report.last_steps = {1,
                       2,
                       {{{WorkerId{0}, op, Seconds(0), Seconds(0.1)}, Bytes(7), Bytes(6)}},
                       {{WorkerId{0}, WorkerId{1}, op, Bytes(64), Seconds(0.1), Seconds(0.2)}},
                       {8, 3}};
  report.comparisons = {{"step_s", 0.2, 0.25, 1.25}};
  report.replicas = ReplicasReport{1.5, 4, 2, Bytes(4096), Bytes(8192)};
  report.frames = FramesReport{Seconds(0.25), Seconds(1), 3};
  report.lost_attempts = {{"exit code 1", 0, 3, std::nullopt, Seconds(1)},
                          {"signal 9 (Killed)", 0, 9, 8, Seconds(2.5), "1f1b, ...", "a, b", Seconds(0.5)}};
  report.slow_devices = {{WorkerId{1}, 41, 80, 2.5}, {WorkerId{0}, 50, std::nullopt, 1.5}};
  report.deviation =
      Deviation{Seconds(-0.25), Seconds(0.5), 16, 1, Seconds(0.125), 3, Seconds(-0.5), 2, Seconds(0.75)};
  report.checkpoints = CheckpointsReport{5, Bytes(512), Seconds(0.25), Seconds(2),
                                         CheckpointChoice{.cost = Seconds(0.5), .interval = Seconds(60)}};
  return report;
}

InferReport full_inference() {
  InferReport report;
  report.context = {{"pp", "0.1"}};
  report.plan_hash = "sha256:00";
  report.settings = {{"data", std::string("prompts.txt")}, {"prompt_length", std::int64_t{16}}};
  report.seed = ~std::uint64_t{0};
  report.exit_reason = "completed";
  report.samples = 5;
  report.micro_batch = 4;
  report.passes = 2;
  report.elapsed = Seconds(1.5);
  report.per_s = 3.5;
  report.latency = {Seconds(0.25), Seconds(0.5), Seconds(0.75)};
  report.workers = {{WorkerId{0}, Seconds(0.5), 0.75, Bytes(4096)}, {WorkerId{1}, Seconds(1), 0.5, Bytes(8)}};
  report.op_times = {{plan::OpKind::forward, StageId{0}, 2, Seconds(0), Seconds(0.1)}};
  return report;
}

}  // namespace

TEST_SUITE("librun/report/report_json") {
  TEST_CASE("a report comes back from its JSON as it was, without the trace") {
    RunReport report = full_report();
    const RunReport read = report_from_json(parse_json(dump_json(to_json(report))));
    CHECK(to_json(read) == to_json(report));
    CHECK(read.seed == report.seed);
    CHECK(read.epochs == report.epochs);
    CHECK(read.evaluations == report.evaluations);
    CHECK(read.best == report.best);
    CHECK(read.workers == report.workers);
    CHECK(read.op_times == report.op_times);
    CHECK(read.comparisons == report.comparisons);
    CHECK(read.step_losses == report.step_losses);
    CHECK(read.skipped_steps == 1);
    CHECK(read.replicas == report.replicas);
    CHECK(read.frames == report.frames);
    CHECK(read.lost_attempts == report.lost_attempts);
    CHECK(read.slow_devices == report.slow_devices);
    CHECK(read.deviation == report.deviation);
    CHECK(read.checkpoints == report.checkpoints);
    report.checkpoints->choice.reset();
    CHECK(report_from_json(to_json(report)).checkpoints == report.checkpoints);
    CHECK(read.context == report.context);
    CHECK(read.settings == report.settings);
    CHECK((read.plan == report.plan));
    CHECK(read.history == report.history);
    CHECK(read.last_steps == report.last_steps);
  }

  TEST_CASE("settings are numbers, texts and truths in the document") {
    const Json settings = to_json(full_report()).at("settings");
    CHECK(settings.at("learning_rate").is_number_float());
    CHECK(settings.at("epochs") == 3);
    CHECK(settings.at("epochs").is_number_integer());
    CHECK(settings.at("shuffle") == true);
    CHECK(settings.at("data") == "synthetic");
  }

  TEST_CASE("reports with unknown keys or wrong types are refused with their place") {
    const auto refusal = [](auto&& change) {
      Json json = to_json(full_report());
      change(json);
      try {
        report_from_json(json);
      } catch (const Error& error) {
        return std::string(error.what());
      }
      return std::string("accepted");
    };
    CHECK(refusal([](Json&) {}) == "accepted");
    CHECK(refusal([](Json& json) { json["workers"][0]["pace"] = 1; }).find("/workers/0/pace") !=
          std::string::npos);
    CHECK(refusal([](Json& json) { json["steps"] = 1.5; }).find("/steps") != std::string::npos);
    CHECK(refusal([](Json& json) { json["step_losses"] = {"a"}; }) ==
          "/step_losses: must be an array of numbers");
    CHECK(refusal([](Json& json) { json["settings"]["data"] = {1}; }) ==
          "/settings: \"data\" must be a text, a number, or true or false");
    CHECK(refusal([](Json& json) { json["settings"]["steps"] = 0xffffffffffffffffu; }) ==
          "/settings: \"steps\" is beyond 64 bits");
    CHECK(refusal([](Json& json) { json["seed"] = -1; }) == "/seed: must be an integer from 0 to 2^64-1");
    CHECK(refusal([](Json& json) {
            json["plan"]["stages"][1]["workers"] = {7};
          }).starts_with("/plan: /stages/1"));
    CHECK(refusal([](Json& json) { json["workers"].erase(1); }) ==
          "/workers: must be 2 as in the plan, found 1");
    CHECK(refusal([](Json& json) { json["workers"][1]["id"] = 2; }).starts_with("/workers/1/id: "));
    CHECK(refusal([](Json& json) { json["op_times"][0]["stage"] = 2; }).starts_with("/op_times/0/stage: "));
    CHECK(refusal([](Json& json) { json["last_steps"]["ops"][0]["op"] = "F2.0"; }) ==
          "/last_steps/ops/0/op: \"F2.0\" is of no stage: the plan has 2");
    CHECK(refusal([](Json& json) { json["last_steps"]["ops"][0]["op"] = "F0.0 F0.1"; }) ==
          "/last_steps/ops/0/op: \"F0.0 F0.1\" must be one operation, such as F0.1");
    CHECK(refusal([](Json& json) {
            json["last_steps"]["ops"][0]["end_s"] = -1;
          }).starts_with("/last_steps/ops/0/end_s: "));
    CHECK(refusal([](Json& json) {
            json["last_steps"]["messages"][0]["to"] = 2;
          }).starts_with("/last_steps/messages/0/to: "));
    CHECK(refusal([](Json& json) { json["history"]["steps"] = 3; }) ==
          "/history/step_s: must have 3 samples of 1 steps for its 3");
    CHECK(refusal([](Json& json) { json["history"]["peak_bytes"].erase(1); }) ==
          "/history/peak_bytes: must have a list for each of the 2 workers");
    CHECK(refusal([](Json& json) { json["history"]["peak_bytes"][0][1] = -1; }) ==
          "/history/peak_bytes/0/1: must be an integer from 0 upwards, not -1");
    CHECK(refusal([](Json& json) {
            json["checkpoints"].erase("cost_s");
          }).starts_with("/checkpoints/cost_s: missing"));
    CHECK(refusal([](Json& json) { json.erase("plan_hash"); }).find("plan_hash") != std::string::npos);
  }

  TEST_CASE("an inference counts samples, a generation tokens") {
    InferReport report = full_inference();
    const Json outputs = to_json(report);
    CHECK(outputs["samples_per_s"] == 3.5);
    CHECK_FALSE(outputs.contains("tokens_per_s"));
    report.tokens = 80;
    const Json generation = to_json(report);
    CHECK(generation["tokens_per_s"] == 3.5);
    CHECK(generation["tokens"] == 80);
    CHECK_FALSE(generation.contains("samples_per_s"));
  }
}

}  // namespace report_json_test
