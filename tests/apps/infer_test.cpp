// pp-run infer as a user meets it.
#include <signal.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "libprofile/core/file.h"
#include "librun/checkpoint/safetensors.h"
#include "tests/apps/run_checked.h"
#include "tests/apps/run_folder.h"

#include "tests/support/doctest.h"
#include "tests/support/places.h"

namespace infer_test {
namespace {

namespace fs = std::filesystem;
using pp::Json;
using pp::test::Outcome;
using Arguments = std::vector<std::string>;

std::string bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

void write_tensor(const fs::path& path, const std::string& name, pp::Shape shape,
                  const std::vector<float>& values) {
  const std::string bytes = bytes_of(values);
  std::string file;
  pp::run::write_safetensors(std::vector<pp::run::StoredTensor>{{name, {std::move(shape)}, bytes}},
                             [&](std::string_view part) { file += part; });
  pp::write_file(path, file);
}

/// x times a weight for each of two outputs; the plan has micro-batches of 2.
struct Folder : pp::test::TemporaryFolder {
  Folder() {
    const pp::ModelGraph model = pp::model_from_json(pp::parse_json(R"({
      "format": "pp.model", "version": 1, "name": "twofold",
      "inputs": [{"name": "x", "shape": [1]}], "targets": [{"name": "y", "shape": [2]}],
      "layers": [{"name": "a", "op": "linear", "inputs": ["x"], "attributes": {"out_features": 2, "bias": false}},
                 {"name": "b", "op": "relu", "inputs": ["a"]}],
      "outputs": ["b"], "loss": {"op": "mse", "inputs": ["b", "y"]}})"));
    const pp::plan::Plan plan = make_plan({.model = model, .cuts = {1}, .mini_batch = 8, .micro_batches = 4});
    pp::write_file(path() / "plan.json", pp::dump_json(pp::plan::to_json(plan)));
    write_tensor(path() / "w.safetensors", "a.weight", {2, 1}, {3, -1});
    write_tensor(path() / "inputs.safetensors", "x", {5, 1}, {1, 2, 3, 4, -5});
  }
  Outcome run(Arguments arguments, const pp::test::Circumstances& what = {}) const {
    arguments.insert(arguments.begin(), "infer");
    return pp::test::run_checked(pp::test::program("pp-run"), arguments, path(), what);
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(path()), {}));
  }
};

const Arguments kCommand{"plan.json",     "--data", "inputs.safetensors", "--initial-weights",
                         "w.safetensors", "-o",     "outputs.safetensors"};

Arguments with(Arguments more) {
  Arguments all = kCommand;
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace

TEST_SUITE("apps/infer") {
  TEST_CASE("a row of outputs for each sample, in the order of the data, by the output's name") {
    const Folder folder;
    const Outcome outcome = folder.run(kCommand);
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    CHECK(outcome.out.starts_with(
        "twofold, stages 1|1, replicas 1-1: 5 samples in 3 passes of up to 2, completed\n"));
    CHECK(outcome.out.find(" samples/s, ") != std::string::npos);
    CHECK(outcome.out.find("latency of a pass: median ") != std::string::npos);
    const pp::run::SafetensorsFile file(folder.path() / "outputs.safetensors");
    REQUIRE(file.tensors().size() == 1);
    CHECK(file.tensors()[0].name == "b");
    CHECK(file.tensors()[0].type == pp::TensorType{{5, 2}, pp::DType::float32});
    // relu(3 x), relu(-x)
    CHECK(file.read(file.tensors()[0]) == bytes_of({3, 0, 6, 0, 9, 0, 12, 0, 0, 5}));
  }

  TEST_CASE("--report and --json say what it took") {
    const Folder folder;
    const Outcome outcome = folder.run(with({"--report", "report.json", "--json", "--micro-batch-size", "4"}));
    REQUIRE(outcome.code == 0);
    const Json report = pp::parse_json(pp::read_file(folder.path() / "report.json"));
    CHECK(pp::parse_json(outcome.out) == report);
    CHECK(report["format"] == "pp.inference");
    CHECK(report["samples"] == 5);
    CHECK(report["passes"] == 2);
    CHECK(report["micro_batch"] == 4);
    CHECK(report["exit_reason"] == "completed");
    CHECK(report["settings"]["initial_weights"] == "w.safetensors");
    CHECK(report["elapsed_s"] > 0);
    const double elapsed = report["elapsed_s"];
    CHECK(report["samples_per_s"] == doctest::Approx(5 / elapsed));
    CHECK(report["latency_s"]["median"] <= report["latency_s"]["largest"]);
    REQUIRE(report["workers"].size() == 2);
    CHECK(report["workers"][1]["peak_bytes"] > 0);
    REQUIRE(report["forwards"].size() == 2);
    CHECK(report["forwards"][1]["count"] == 2);
  }

  TEST_CASE("the weights that pp-run saves, and its checkpoints, give the same outputs on another plan") {
    const pp::test::RunFolder folder({.cuts = {2}});
    folder.write_plan("other.json", {.cuts = {1}, .replicas = {2, 1}, .schedule = "gpipe"});
    REQUIRE(folder.run({"plan.json", "--steps", "4", "--checkpoint", "ck", "--save-weights", "w"}).code == 0);
    const auto infer = [&](const std::string& plan, const std::string& weights, const std::string& out) {
      return folder.run({"infer", plan, "--initial-weights", weights, "-o", out, "--micro-batch-size", "3"});
    };
    REQUIRE(infer("plan.json", "w", "one").code == 0);
    REQUIRE(infer("other.json", "ck", "two").code == 0);
    CHECK(pp::read_file(folder.path() / "one") == pp::read_file(folder.path() / "two"));
  }

  TEST_CASE("what is wrong is said in one line with exit code 2, and nothing is written") {
    const Folder folder;
    const auto refused = [&](const Arguments& arguments, const std::string& message) {
      const Outcome outcome = folder.run(arguments);
      CHECK(outcome.code == 2);
      CHECK(outcome.out.empty());
      CHECK(outcome.err == "pp-run: error: " + message + "\n");
      CHECK_FALSE(fs::exists(folder.path() / "outputs.safetensors"));
    };
    refused({"plan.json", "--data", "w.safetensors", "--initial-weights", "w.safetensors", "-o", "o"},
            "w.safetensors: no tensor is named \"x\", as the model's input or target is; it has a.weight");
    refused({"plan.json", "--data", "inputs.safetensors", "--initial-weights", "inputs.safetensors", "-o", "o"},
            "inputs.safetensors: tensor \"x\": is not in the model; leave such tensors out with "
            "--ignore-unknown-weights");
    refused({"plan.json", "--data", "nowhere", "--initial-weights", "w.safetensors", "-o", "o"},
            "nowhere: no such file or folder; give data, or synthetic");
    refused({"plan.json", "--data", "inputs.safetensors", "-o", "o"},
            "no weights: give them with --initial-weights, or try the plan without any by --random-weights");
    refused(with({"--random-weights"}),
            "--random-weights takes weights from the seed; leave out --initial-weights, or it");
    refused({"plan.json", "--data", "inputs.safetensors", "--initial-weights", "w.safetensors", "-o",
             "inputs.safetensors"},
            "inputs.safetensors: is read and written; write to another file");
    refused(
        {"plan.json", "--data", "inputs.safetensors", "--initial-weights", "w.safetensors", "-o", "nowhere/o"},
        "nowhere/o: cannot be written: No such file or directory");
    refused({"plan.json", "--data", "inputs.safetensors", "--initial-weights", "w.safetensors", "-o", "-"},
            "-: outputs are written row by row to where they belong, which takes a plain file; give one");
    refused(with({"--subset", "half"}), "--subset: unknown name \"half\"; use one of training, test");
    CHECK(folder.files() == 3);
  }

  TEST_CASE("an interrupted inference ends with 130 and writes no outputs") {
    const Folder folder;
    const Outcome outcome =
        folder.run({"plan.json", "--data", "synthetic", "--synthetic-samples", "2000000", "--random-weights",
                    "--micro-batch-size", "1", "-o", "outputs.safetensors"},
                   {.signal = SIGINT, .signal_when = "inference"});
    CHECK(outcome.code == 130);
    CHECK(outcome.err.find("interrupted: outputs.safetensors is not written") != std::string::npos);
    CHECK(folder.files() == 3);
  }

  TEST_CASE("tokens: a rule that is certain, by hand") {
    // The token after t is t + 1 mod 5: the embedding is the identity, the head moves it on by one.
    const pp::test::TemporaryFolder folder;
    const pp::ModelGraph model = pp::model_from_json(pp::parse_json(R"({
      "format": "pp.model", "version": 1, "name": "counter",
      "inputs": [{"name": "t", "dtype": "int64", "shape": [6]}], "targets": [{"name": "n", "dtype": "int64", "shape": [6]}],
      "layers": [{"name": "e", "op": "embedding", "inputs": ["t"], "attributes": {"num_embeddings": 5, "embedding_dim": 5}},
                 {"name": "h", "op": "linear", "inputs": ["e"], "attributes": {"out_features": 5, "bias": false}}],
      "outputs": ["h"], "loss": {"op": "cross_entropy", "inputs": ["h", "n"]}})"));
    pp::write_file(folder.path() / "plan.json",
                   pp::dump_json(pp::plan::to_json(make_plan({.model = model, .cuts = {1}}))));
    std::vector<float> identity(25), next(25);
    for (std::size_t i = 0; i < 5; ++i) identity[6 * i] = next[(i + 1) % 5 * 5 + i] = 1;
    const std::string one = bytes_of(identity), other = bytes_of(next);
    std::string file;
    pp::run::write_safetensors(
        std::vector<pp::run::StoredTensor>{{"e.weight", {{5, 5}}, one}, {"h.weight", {{5, 5}}, other}},
        [&](std::string_view part) { file += part; });
    pp::write_file(folder.path() / "w", file);
    pp::write_file(folder.path() / "prompts", std::string("\0\1\2\3\4\0", 6));  // three of two tokens
    const auto infer = [&](Arguments more) {
      Arguments all{"infer", "plan.json",         "--data", "prompts", "--token-type",
                    "uint8", "--initial-weights", "w",      "-o",      "out"};
      all.insert(all.end(), more.begin(), more.end());
      return pp::test::run_checked(pp::test::program("pp-run"), all, folder.path());
    };
    const auto integers = [&](std::string_view name) {
      const pp::run::SafetensorsFile out(folder.path() / "out");
      const std::string bytes = out.read(*out.find(name));
      std::vector<std::int64_t> values(bytes.size() / 8);
      std::memcpy(values.data(), bytes.data(), bytes.size());
      return values;
    };
    const Outcome outcome = infer({"--prompt-length", "2", "--max-new-tokens", "3", "--json"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    CHECK(integers("t") == std::vector<std::int64_t>{0, 1, 2, 3, 4, 2, 3, 4, 0, 1, 4, 0, 1, 2, 3});
    CHECK(integers("t.length") == std::vector<std::int64_t>{5, 5, 5});
    const Json report = pp::parse_json(outcome.out);
    CHECK(report["tokens"] == 9);
    CHECK(report["samples"] == 3);
    CHECK(report["tokens_per_s"] > 0);
    CHECK(report["settings"]["max_new_tokens"] == 3);
    // A 3 that is made is the last one; what is left holds it, too.
    REQUIRE(infer({"--prompt-length", "2", "--max-new-tokens", "3", "--end-token", "3"}).code == 0);
    CHECK(integers("t") == std::vector<std::int64_t>{0, 1, 2, 3, 3, 2, 3, 4, 0, 1, 4, 0, 1, 2, 3});
    CHECK(integers("t.length") == std::vector<std::int64_t>{4, 5, 5});

    fs::remove(folder.path() / "out");
    const auto refused = [&](Arguments more, const std::string& message) {
      const Outcome bad = infer(std::move(more));
      CHECK(bad.code == 2);
      CHECK(bad.err == "pp-run: error: " + message + "\n");
      CHECK_FALSE(fs::exists(folder.path() / "out"));
    };
    refused({"--temperature", "1"}, "how tokens are made is said without how many: give --max-new-tokens");
    refused({"--prompt-length", "2", "--max-new-tokens", "6"},
            "--max-new-tokens 6 after 2: the model's \"t\" has 6 positions, which leaves 5");
    refused({"--prompt-length", "4", "--max-new-tokens", "1", "--sequence-input", "u"},
            "--sequence-input: model \"counter\" has no \"u\" that grows; use t");
  }

  TEST_CASE("a disk that is full ends the run with 1, and nothing is left") {
    const pp::test::RunFolder folder;
    const Outcome outcome = folder.run_limited(
        /*blocks=*/1, {"infer", "plan.json", "--random-weights", "-o", "outputs.safetensors"});
    CHECK(outcome.code == 1);
    CHECK(outcome.err.find("outputs.safetensors: cannot be written: File too large") != std::string::npos);
    CHECK(folder.files() == 1);
  }
}

}  // namespace infer_test
