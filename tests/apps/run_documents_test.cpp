// Plans, files and signals that pp-run must refuse or survive.
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "libprofile/core/file.h"
#include "libprofile/core/json_reader.h"
#include "tests/apps/run_folder.h"

#include "tests/support/doctest.h"

namespace run_documents_test {
namespace {

using pp::Json;
using pp::test::Outcome;

using Folder = pp::test::RunFolder;

void refused(const Outcome& outcome, const std::string& message) {
  CHECK(outcome.code == 2);
  CHECK(outcome.out.empty());
  CHECK(outcome.err == "pp-run: error: " + message + "\n");
}

/// Long enough to be ended by a signal only.
const std::vector<std::string> kLong{"plan.json", "--steps", "100000000", "--no-evaluate", "-o", "report.json"};

}  // namespace

TEST_SUITE("apps/run_documents") {
  TEST_CASE("replicas that both run a micro-batch are refused by train and check") {
    const Folder folder({.replicas = {2}}, 8, [](Json& plan) {
      for (Json& worker : plan["workers"]) worker["program"] = "F0.0 B0.0 F0.1 B0.1 F0.2 B0.2 F0.3 B0.3 AR0 U0";
    });
    const std::string message =
        "worker 1, operation 0 (F0.0): worker 0 runs this micro-batch; replicas that split one cannot be run: "
        "list it on one worker";
    refused(folder.run({"check", "plan.json"}), "plan.json: /workers: " + message);
    refused(folder.run({"plan.json", "--steps", "3", "--no-evaluate"}), "/workers: " + message);
  }

  TEST_CASE("a plan of a model without weights runs when --model brings the one that was compared") {
    Json model;
    const Folder folder({.cuts = {2}}, 8, [&](Json& plan) {
      model = plan["model"];
      plan["model"]["version"] = 2;
      plan["model"]["verified"] = false;
    });
    refused(folder.run({"plan.json", "--steps", "2"}),
            "model \"small\" was imported by --plan-only, without weights, and never compared with its module; "
            "import "
            "it with scripts/import-torch without --plan-only, which compares them, and give that model.json "
            "by --model");
    pp::write_file(folder.path() / "model.json", pp::dump_json(model));
    CHECK(folder.run({"check", "plan.json", "--model", "model.json"}).code == 0);
    // Weights that it was imported with are part of it.
    model["version"] = 2;
    model["weights"] = "weights.safetensors";
    pp::write_file(folder.path() / "imported.json", pp::dump_json(model));
    const std::vector<std::string> check{"check", "plan.json", "--model", "imported.json"};
    refused(
        folder.run(check),
        "plan.json: no weights: model \"small\" was imported with its own, in weights.safetensors; give them "
        "with --initial-weights, or say --random-weights if drawn ones are meant");
    std::vector<std::string> meant = check;
    meant.emplace_back("--random-weights");
    CHECK(folder.run(meant).code == 0);
    const Outcome outcome = folder.run({"plan.json", "--model", "model.json", "--steps", "2", "--no-evaluate"});
    CAPTURE(outcome.err);
    CHECK(outcome.code == 0);
    CHECK(outcome.err.find("warning") == std::string::npos);
    model["layers"][0]["name"] = "first";
    model["layers"][1]["inputs"][0] = "first";
    pp::write_file(folder.path() / "other.json", pp::dump_json(model));
    const Outcome other = folder.run({"check", "plan.json", "--model", "other.json"});
    CHECK(other.code == 2);
    CHECK(other.err.find("other.json: the plan is for model \"small\" (sha256:") != std::string::npos);
  }

  TEST_CASE("--no-decay and --lr-factors are asked for by patterns that match") {
    const Folder folder;
    CHECK(folder
              .run({"plan.json", "--steps", "2", "--weight-decay", "0.1", "--no-decay", "bias", "--lr-factors",
                    "a.*=0.5,c=2", "--no-evaluate", "-o", "report.json"})
              .code == 0);
    const Json report = pp::parse_json(pp::read_file(folder.path() / "report.json"));
    CHECK(report.dump().find("\"no_decay\":\"bias\"") != std::string::npos);
    refused(folder.run({"plan.json", "--steps", "2", "--no-decay", "norm"}),
            "--no-decay: no trained parameter matches \"norm\"; their names are a.weight, a.bias, c.weight, "
            "...; a pattern "
            "stands anywhere in a name, one with * or ? is all of it");
  }

  TEST_CASE("more memory than any machine has is refused in one line, before any data are made") {
    // Weights 2^36 x 16 of 4 bytes, with gradients and momentum: 2^40 * 4 * 3 = 12 TiB; 80 samples of 2^36
    // numbers of 4 bytes: 20 TiB.
    const Folder folder({.cuts = {2}}, std::int64_t{1} << 36);
    for (const std::string command : {"check", "train"}) {
      const Outcome outcome = folder.run({command, "plan.json", "--steps", "2"});
      CHECK(outcome.code == 2);
      CHECK(outcome.err.find("the run needs at least ") != std::string::npos);
      CHECK(outcome.err.find(" are available; use fewer or smaller samples\n") != std::string::npos);
      CHECK(std::ranges::count(outcome.err, '\n') == 1);
    }
  }

  TEST_CASE("lengths and seeds that no run has are refused with their limit") {
    const Folder folder;
    refused(folder.run({"plan.json", "--steps", "9223372036854775807"}),
            "steps = 9223372036854775807: must be 1 to 1000000000");
    // 64 samples in mini-batches of 8: 8 steps.
    refused(folder.run({"plan.json", "--epochs", "2147483647"}),
            "epochs = 2147483647 of 8 steps each are more than 1000000000 steps, the limit; use fewer");
    const Outcome seed = folder.run({"plan.json", "--steps", "1", "--seed", "-1"});
    CHECK(seed.code == 2);
    CHECK(seed.err.find("--seed: \"-1\" is not a whole number of at least 0") != std::string::npos);
  }

  TEST_CASE("the plan and the other outputs cannot be an output") {
    const Folder folder;
    const std::string plan = pp::read_file(folder.path() / "plan.json");
    refused(folder.run({"plan.json", "--steps", "1", "-o", "plan.json"}),
            "plan.json: is read and written; write to another file");
    refused(folder.run({"plan.json", "--steps", "1", "--save-weights", "plan.json"}),
            "plan.json: is read and written; write to another file");
    refused(folder.run({"plan.json", "--steps", "1", "-o", "x", "--save-weights", "x"}),
            "x: two outputs have this name; give each its own");
    CHECK(pp::read_file(folder.path() / "plan.json") == plan);
    CHECK(folder.files() == 1);
  }

  TEST_CASE("the learning rate's schedule and the gradient's norm are options, and stand in the report") {
    const Folder folder;
    pp::write_file(folder.path() / "rates.txt", "0 0.1\n2 0.01\n");
    const auto settings = [&](const std::vector<std::string>& more) {
      std::vector<std::string> arguments{"plan.json", "--steps", "4", "-o", "report.json"};
      arguments.insert(arguments.end(), more.begin(), more.end());
      const Outcome outcome = folder.run(arguments);
      CAPTURE(outcome.err);
      REQUIRE(outcome.code == 0);
      return pp::parse_json(pp::read_file(folder.path() / "report.json"))["settings"];
    };
    const pp::Json cosine =
        settings({"--lr-schedule", "cosine", "--warmup-steps", "2", "--lr-min", "0.001", "--clip-norm", "1"});
    CHECK(cosine["lr_schedule"] == "cosine");
    CHECK(cosine["warmup_steps"] == 2);
    CHECK(cosine["lr_min"] == 0.001);
    CHECK(cosine["clip_norm"] == 1.0);
    const pp::Json stepped = settings({"--lr-schedule", "step", "--lr-step-size", "2", "--lr-factor", "0.5"});
    CHECK(stepped["lr_step_size"] == 2);
    CHECK(stepped["lr_factor"] == 0.5);
    CHECK(settings({"--lr-schedule", "rates.txt"})["lr_schedule"] == "rates.txt");
    refused(
        folder.run({"plan.json", "--steps", "4", "--lr-schedule", "cosinus"}),
        "--lr-schedule: unknown name \"cosinus\"; did you mean cosine? Use one of constant, step, cosine, or "
        "a file of steps and their rates");
    refused(folder.run({"plan.json", "--steps", "4", "--lr-schedule", "rates.txt", "-o", "rates.txt"}),
            "rates.txt: is read and written; write to another file");
  }

  TEST_CASE(
      "--on-nan stop: report and weights of the step before, exit 1; settings of other optimizers are "
      "refused") {
    const Folder folder;
    const Outcome outcome = folder.run({"plan.json", "--steps", "50", "--lr", "1e30", "--on-nan", "stop", "-o",
                                        "report.json", "--save-weights", "w.safetensors"});
    CHECK(outcome.code == 1);
    CHECK(outcome.err.find(" is not a finite number; the run ends with the weights of the step before") !=
          std::string::npos);
    const pp::Json report = pp::parse_json(pp::read_file(folder.path() / "report.json"));
    CHECK(report["exit_reason"] == "not_finite");
    CHECK(report["steps"] < 50);
    CHECK(report["skipped_steps"] == 0);
    CHECK(folder.files() == 3);
    refused(folder.run({"plan.json", "--steps", "4", "--beta1", "0.8"}),
            "--beta1: the plan's optimizer sgd has --momentum; leave it out, or plan with --optimizer adam or "
            "adamw");
    refused(folder.run({"plan.json", "--steps", "4", "--on-nan", "go"}),
            "--on-nan: unknown name \"go\"; use one of stop, skip");
    CHECK(folder.run({"plan.json", "--steps", "4", "--accumulate", "3"}).code == 0);
  }

  TEST_CASE("a pipe that nobody reads is refused at once") {
    const Folder folder;
    REQUIRE(::mkfifo((folder.path() / "pipe").c_str(), 0600) == 0);
    refused(folder.run({"plan.json", "--steps", "1", "-o", "pipe"}),
            "pipe: cannot be written: no process reads this pipe; start its reader first");
  }

  TEST_CASE(
      "an interruption and a closed terminal end the run after its step: the report is written, exit 130") {
    const Folder folder;
    for (const int signal : {SIGHUP, SIGTERM, SIGINT}) {
      const Outcome outcome = folder.run(kLong, {.signal = signal, .signal_when = "training"});
      CHECK(outcome.code == 130);
      CHECK(pp::parse_json(pp::read_file(folder.path() / "report.json"))["exit_reason"] == "interrupted");
      CHECK(folder.files() == 2);
    }
  }

  TEST_CASE("a killed run leaves nothing half-written behind") {
    const Folder folder;
    const Outcome outcome = folder.run(kLong, {.signal = SIGKILL, .signal_when = "training"});
    CHECK(outcome.code == 128 + SIGKILL);
    CHECK(folder.files() == 1);
  }

  TEST_CASE("a closed stderr does not end a training") {
    const Folder folder;
    CHECK(folder.run({"plan.json", "--steps", "16", "-o", "report.json"}, {.broken = 2}).code == 0);
    CHECK(pp::parse_json(pp::read_file(folder.path() / "report.json"))["exit_reason"] == "completed");
  }
}

}  // namespace run_documents_test
