// A folder with a small plan that pp-run trains.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/file.h"
#include "libprofile/core/json_reader.h"
#include "tests/apps/run_checked.h"
#include "tests/support/places.h"
#include "tests/support/plans.h"

namespace pp::test {

/// linear, relu, linear and cross entropy over samples of `width` numbers.
inline ModelGraph small_model(std::int64_t width) {
  Json json = parse_json(R"({"format": "pp.model", "version": 1, "name": "small",
    "inputs": [{"name": "x", "dtype": "float32", "shape": [8]}],
    "targets": [{"name": "y", "dtype": "int64", "shape": []}],
    "layers": [{"name": "a", "op": "linear", "inputs": ["x"], "attributes": {"out_features": 16}},
               {"name": "b", "op": "relu", "inputs": ["a"]},
               {"name": "c", "op": "linear", "inputs": ["b"], "attributes": {"out_features": 4}}],
    "outputs": ["c"], "loss": {"op": "cross_entropy", "inputs": ["c", "y"]}})");
  json["inputs"][0]["shape"] = {width};
  return model_from_json(json);
}

/// The step of the newest checkpoint in a folder; 0 where there is none.
inline int newest_checkpoint(const std::filesystem::path& folder) {
  int newest = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step-")) newest = std::max(newest, std::atoi(name.c_str() + 5));
  }
  return newest;
}

struct RunFolder : TemporaryFolder {
  explicit RunFolder(
      PlanSpec spec = {.cuts = {2}}, std::int64_t width = 8,
      const std::function<void(Json&)>& change = [](Json&) {}) {
    write_plan("plan.json", std::move(spec), width, change);
  }
  void write_plan(
      const std::string& name, PlanSpec spec, std::int64_t width = 8,
      const std::function<void(Json&)>& change = [](Json&) {}) const {
    spec.model = small_model(width);
    Json plan = plan::to_json(make_plan(spec));
    change(plan);
    write_file(path() / name, dump_json(plan));
  }
  /// pp-run on synthetic data.
  Outcome run(std::vector<std::string> arguments, const Circumstances& what = {}) const {
    return run_checked(tool(), on_data(std::move(arguments)), path(), what);
  }
  /// The same, killed with SIGKILL after `seconds` (exit code 137) unless it has ended.
  Outcome run_for(double seconds, std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"-s", "KILL", std::to_string(seconds), tool().string()});
    return run_checked("/usr/bin/timeout", on_data(std::move(arguments)), path());
  }
  /// The same where no file can have more than `blocks` of 512 bytes.
  Outcome run_limited(int blocks, std::vector<std::string> arguments) const {
    const std::string script = "ulimit -f " + std::to_string(blocks) + "; exec \"$0\" \"$@\"";
    arguments.insert(arguments.begin(), {"-c", script, tool().string()});
    return run_checked("/bin/sh", on_data(std::move(arguments)), path());
  }
  static std::filesystem::path tool() { return program("pp-run"); }
  static std::vector<std::string> on_data(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--data", "synthetic", "--synthetic-samples", "64"});
    return arguments;
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path()), {}));
  }
};

}  // namespace pp::test
