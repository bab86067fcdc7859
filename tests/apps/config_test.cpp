// A config.json of Hugging Face from the shell: shown, estimated, planned, trained, its weights in shards, and
// text.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "libprofile/core/file.h"
#include "libprofile/core/json_reader.h"
#include "tests/apps/run_checked.h"
#include "tests/support/places.h"

#include "tests/support/doctest.h"

namespace config_test {
namespace {

namespace fs = std::filesystem;
using pp::Json;
using pp::test::Outcome;
using Arguments = std::vector<std::string>;

/// A model of bytes.
struct Folder : pp::test::TemporaryFolder {
  Folder() {
    pp::write_file(path() / "config.json", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "vocab_size": 256, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3,
      "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rope_theta": 10000.0,
      "tie_word_embeddings": false, "torch_dtype": "bfloat16"})");
    std::string text;
    for (int i = 0; i < 40; ++i) text += "the cat sat on the mat. ";
    pp::write_file(path() / "text.txt", text);
  }
  Outcome run(const std::string& tool, const Arguments& arguments) const {
    return pp::test::run_checked(pp::test::program(tool), arguments, path());
  }
  /// It must end well.
  std::string output(const std::string& tool, const Arguments& arguments) const {
    const Outcome outcome = run(tool, arguments);
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    return outcome.out;
  }
  Json document(const std::string& name) const { return pp::parse_json(pp::read_file(path() / name)); }
};

}  // namespace

TEST_SUITE("apps/config") {
  TEST_CASE("a config.json is a model, by its name or its folder's, with arguments or without") {
    const Folder folder;
    folder.output("pp-profile", {"models", "config.json:layers=2,sequence=12", "-o", "model.json"});
    const Json model = folder.document("model.json");
    CHECK(model["name"] == "llama:layers=2,sequence=12");
    CHECK(model["inputs"][0]["shape"] == Json{12});
    folder.output("pp-profile", {"models", ".", "-o", "whole.json"});
    CHECK(folder.document("whole.json")["inputs"][0]["shape"] == Json{64});
    folder.output("pp-profile", {"models", ".:layers=2,sequence=12", "-o", "same.json"});
    CHECK(folder.document("same.json") == model);

    const Outcome width = folder.run("pp-profile", {"models", "config.json:width=3"});
    CHECK(width.code == 2);
    CHECK(width.err.find("unknown argument \"width\"; use layers=N and sequence=N") != std::string::npos);
    const Outcome other = folder.run("pp-profile", {"models", "model.json:layers=1"});
    CHECK(other.code == 2);
    CHECK(other.err.find("takes no arguments: it is no config.json of Hugging Face") != std::string::npos);
  }

  TEST_CASE("an estimate takes the file's type and says it beside the tokens of a sample") {
    const Folder folder;
    const auto first_line = [&](const Arguments& more) {
      Arguments arguments{"estimate", "config.json", "--micro-batch-sizes", "1"};
      arguments.insert(arguments.end(), more.begin(), more.end());
      const std::string out = folder.output("pp-profile", arguments);
      return out.substr(0, out.find('\n'));
    };
    const std::string h100 = pp::test::repository("configs/devices/h100.json");
    CHECK(first_line({"--device-spec", h100}).ends_with(" parameters, bfloat16, samples of 64 tokens"));
    CHECK(first_line({"--device-spec", h100, "--dtype", "fp32"}).ends_with(", float32, samples of 64 tokens"));
    // A device without rates of that type.
    const std::string core = pp::test::repository("configs/devices/cpu-core.json");
    CHECK(first_line({"--device-spec", core}).ends_with(", float32, samples of 64 tokens"));
    const Outcome half =
        folder.run("pp-profile", {"estimate", "config.json", "--device-spec", h100, "--dtype", "bfloat"});
    CHECK(half.err.find("--dtype: unknown name \"bfloat\"; did you mean bfloat16? ") != std::string::npos);
    CHECK(first_line({"--device-spec", "H100"}) == first_line({"--device-spec", "h100"}));
    CHECK(first_line({"--device-spec", h100, "--context", "32"}).ends_with(", samples of 32 tokens"));
    const Outcome twice = folder.run("pp-profile", {"estimate", "config.json:layers=1,sequence=8",
                                                    "--device-spec", h100, "--context", "32"});
    CHECK(twice.err.find("--context 32: config.json:layers=1,sequence=8 says its sequence already") !=
          std::string::npos);
    const Outcome trainer =
        folder.run("pp-profile", {"estimate", "config.json", "--device-spec", h100, "--trainer", "megatro"});
    CHECK(trainer.err.find("--trainer: unknown name \"megatro\"; did you mean megatron? ") !=
          std::string::npos);
  }

  TEST_CASE("it is estimated, planned and trained; shards go out and in; bytes are shown as text") {
    const Folder folder;
    folder.output("pp-profile", {"estimate", "config.json:layers=2,sequence=16", "--device-spec",
                                 pp::test::repository("configs/devices/cpu-core.json"), "--micro-batch-sizes",
                                 "1,2,4", "-o", "profile.json"});
    folder.output("pp-plan", {"profile.json", "--devices", "2", "--bandwidth", "1GB/s", "--mini-batch", "8",
                              "--stages", "2", "--replicas", "1-1", "-o", "plan.json"});
    folder.output("pp-run", {"plan.json", "--data", "text.txt", "--token-type", "uint8", "--steps", "3", "--lr",
                             "0.01", "--save-weights", "trained/", "--shard-size", "20kB"});
    const Json index = folder.document("trained/model.safetensors.index.json");
    CHECK(index["weight_map"].contains("model.layers.1.self_attn.q_proj.weight"));
    CHECK(index["weight_map"]["model.embed_tokens.weight"] != index["weight_map"]["lm_head.weight"]);

    const Arguments infer{
        "infer",           "plan.json", "--data",           "text.txt", "--token-type",      "uint8",
        "--prompt-length", "8",         "--max-new-tokens", "6",        "--initial-weights", "trained"};
    const auto with = [&](Arguments more) {
      Arguments all = infer;
      all.insert(all.end(), more.begin(), more.end());
      return all;
    };
    const std::string shown = folder.output("pp-run", with({"--text", "-o", "kept.safetensors"}));
    CHECK(shown.find("\n0: the cat ") != std::string::npos);
    folder.output("pp-run", with({"--no-cache", "-o", "again.safetensors"}));
    CHECK(pp::read_file(folder.path() / "kept.safetensors") ==
          pp::read_file(folder.path() / "again.safetensors"));
  }
}

}  // namespace config_test
