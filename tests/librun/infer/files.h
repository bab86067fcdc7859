// Inference from files, and what it writes.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "librun/checkpoint/weights.h"
#include "librun/infer.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/librun/folder.h"
#include "tests/librun/infer/silent.h"
#include "tests/librun/model_alone.h"
#include "tests/support/schema.h"
#include "tests/support/torch_test.h"

namespace pp::test {

struct InferFiles {
  InferFiles(const NamedTensors& inputs, const NamedTensors& weights) {
    write_tensors(folder.path() / "inputs.safetensors", inputs);
    write_tensors(folder.path() / "weights.safetensors", weights);
    options.data = (folder.path() / "inputs.safetensors").string();
    options.initial_weights = folder.path() / "weights.safetensors";
    options.outputs = folder.path() / "outputs.safetensors";
  }
  InferFiles(const NamedTensors& inputs, const NamedTensors& weights, run::GenerationOptions generation)
      : InferFiles(inputs, weights) {
    options.generation = std::move(generation);
  }
  NamedTensors infer(const plan::Plan& plan) {
    report = run::infer(plan, options, observer);
    CHECK(schema_error("inference", run::to_json(report)) == "");
    return run::read_weights(options.outputs);
  }
  /// The message with the folder's name taken out; no outputs are there. Empty: accepted.
  std::string refusal(const plan::Plan& plan, std::optional<ErrorKind> kind = ErrorKind::data) {
    std::filesystem::remove(options.outputs);
    std::string text = error_of([&] { run::infer(plan, options, observer); }, kind);
    CHECK(std::filesystem::exists(options.outputs) == text.empty());
    const std::string name = folder.path().string() + "/";
    for (auto at = text.find(name); at != std::string::npos; at = text.find(name)) text.erase(at, name.size());
    return text;
  }

  TestFolder folder;
  run::InferOptions options;
  SilentInference observer;
  run::InferReport report;
};

}  // namespace pp::test
