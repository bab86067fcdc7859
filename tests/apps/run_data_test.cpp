// pp-run on files of data: what its options reach, and what is refused before work starts.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "libprofile/core/file.h"
#include "libprofile/core/json_reader.h"
#include "tests/apps/run_checked.h"
#include "tests/support/places.h"
#include "tests/support/plans.h"

#include "tests/support/doctest.h"

namespace run_data_test {
namespace {

namespace fs = std::filesystem;
using pp::Json;
using pp::test::Outcome;

/// Two stages: an embedding of 128 tokens, a linear.
pp::ModelGraph language() {
  return pp::model_from_json(pp::parse_json(R"({"format": "pp.model", "version": 1, "name": "language",
    "inputs": [{"name": "tokens", "dtype": "int64", "shape": [8]}],
    "targets": [{"name": "next", "dtype": "int64", "shape": [8]}],
    "layers": [{"name": "a", "op": "embedding", "inputs": ["tokens"],
                "attributes": {"num_embeddings": 128, "embedding_dim": 4}},
               {"name": "b", "op": "linear", "inputs": ["a"], "attributes": {"out_features": 128}}],
    "outputs": ["b"], "loss": {"op": "cross_entropy", "inputs": ["b", "next"]}})"));
}

/// Two numbers to one.
pp::ModelGraph regression() {
  return pp::model_from_json(pp::parse_json(R"({"format": "pp.model", "version": 1, "name": "regression",
    "inputs": [{"name": "x", "dtype": "float32", "shape": [2]}],
    "targets": [{"name": "y", "dtype": "float32", "shape": [1]}],
    "layers": [{"name": "a", "op": "linear", "inputs": ["x"], "attributes": {"out_features": 4}},
               {"name": "b", "op": "linear", "inputs": ["a"], "attributes": {"out_features": 1}}],
    "outputs": ["b"], "loss": {"op": "mse", "inputs": ["b", "y"]}})"));
}

struct Folder : pp::test::TemporaryFolder {
  explicit Folder(pp::ModelGraph model) {
    const pp::plan::Plan plan =
        make_plan({.model = std::move(model), .cuts = {1}, .mini_batch = 4, .micro_batches = 2});
    pp::write_file(path() / "plan.json", pp::dump_json(pp::plan::to_json(plan)));
  }
  Outcome run(const std::vector<std::string>& arguments) const {
    return pp::test::run_checked(pp::test::program("pp-run"), arguments, path());
  }
};

/// By training and by `check`, with the same words.
void refused(const Folder& folder, std::vector<std::string> data, const std::string& message) {
  std::vector<std::string> arguments{"plan.json", "--data"};
  arguments.insert(arguments.end(), data.begin(), data.end());
  std::vector<std::string> train = arguments;
  train.insert(train.end(), {"--steps", "1", "-o", "report.json"});
  const Outcome trained = folder.run(train);
  CHECK(trained.code == 2);
  CHECK(trained.err == "pp-run: error: " + message + "\n");
  CHECK_FALSE(fs::exists(folder.path() / "report.json"));
  arguments.insert(arguments.begin(), "check");
  const Outcome checked = folder.run(arguments);
  CHECK(checked.code == 2);
  CHECK(checked.err == "pp-run: error: plan.json: " + message + "\n");
}

}  // namespace

TEST_SUITE("apps/run_data") {
  TEST_CASE("a text is learnt byte by byte, its end is the test set, and the report says how it was read") {
    const Folder folder(language());
    std::string text;
    while (text.size() < 2000) text += "the same words again and again; ";
    pp::write_file(folder.path() / "text.txt", text);
    const Outcome outcome =
        folder.run({"plan.json", "--data", "text.txt", "--token-type", "uint8", "--test-share", "0.1",
                    "--epochs", "3", "--lr", "0.5", "-o", "report.json"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    const Json report = pp::parse_json(pp::read_file(folder.path() / "report.json"));
    CHECK(report["settings"]["token_type"] == "uint8");
    CHECK(report["settings"]["test_share"] == 0.1);
    // 2016 bytes are 251 windows of 8 with a byte after; 25 are kept for tests, 226 are 57 mini-batches of 4.
    CHECK(report["steps"] == 171);
    REQUIRE(report["epochs"].size() == 3);
    CHECK(report["epochs"][2]["test_loss"] < report["epochs"][0]["test_loss"]);
  }

  TEST_CASE("the text of configs/data/alice is learnt: better than by the frequency of each byte") {
    const Folder folder(language());
    const Outcome outcome =
        folder.run({"plan.json", "--data", pp::test::repository("configs/data/alice/alice.txt"), "--token-type",
                    "uint8", "--test-share", "0.1", "--epochs", "1", "--lr", "0.3", "-o", "report.json"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    const Json report = pp::parse_json(pp::read_file(folder.path() / "report.json"));
    // 47,423 bytes are 5,927 windows of 8 with a byte after; 592 are kept for tests, 5,335 are 1,334
    // mini-batches of 4.
    CHECK(report["steps"] == 1334);
    // Minus the mean logarithm of how frequent the test bytes are in training: 3.06.
    CHECK(report["epochs"][0]["test_loss"] < 3.06);
  }

  TEST_CASE("a table with a named target column is learnt") {
    const Folder folder(regression());
    std::string table = "a,sum,b\n";
    for (int i = 0; i < 40; ++i)
      table += std::to_string(i % 5) + "," + std::to_string(i % 5 + i % 3) + "," + std::to_string(i % 3) + "\n";
    pp::write_file(folder.path() / "table.csv", table);
    const Outcome outcome =
        folder.run({"plan.json", "--data", "table.csv", "--target-column", "sum", "--epochs", "30", "--lr",
                    "0.01", "--momentum", "0", "-o", "report.json"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    const Json report = pp::parse_json(pp::read_file(folder.path() / "report.json"));
    CHECK(report["settings"]["target_column"] == "sum");
    CHECK(report["epochs"][29]["train_loss"] < 0.1);
  }

  TEST_CASE("values that no model can take are refused with their line") {
    const Folder folder(regression());
    pp::write_file(folder.path() / "table.csv", "a,b,y\n1,2,3\n1,nan,3\n");
    refused(folder, {"table.csv"}, "table.csv: line 3, column \"b\": \"nan\" is no finite number");
  }

  TEST_CASE("tokens beyond the vocabulary are refused with their byte") {
    const Folder folder(language());
    pp::write_file(folder.path() / "text.txt", "plain, then caf\xc3\xa9 and more");
    refused(folder, {"text.txt", "--token-type", "uint8"},
            "text.txt: byte 15: 195 in sample 1, the model's input \"tokens\" takes 0 to 127; mend the data or "
            "plan a "
            "model with more");
  }

  TEST_CASE("a file of no known kind is refused with what could be said about it") {
    const Folder folder(language());
    pp::write_file(folder.path() / "text.txt", "some text");
    refused(folder, {"text.txt"},
            "text.txt: a single file is read as .safetensors or .csv, by --data-format, or as tokens by "
            "--token-type; scripts/export-data makes .safetensors of what a DataLoader reads");
  }
}

}  // namespace run_data_test
