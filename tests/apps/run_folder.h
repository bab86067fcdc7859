// A folder with a small plan that pp-run trains.
#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/file.h"
#include "libprofile/core/json_reader.h"
#include "tests/support/plans.h"
#include "tests/support/process.h"

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

struct RunFolder : TemporaryFolder {
  explicit RunFolder(
      PlanSpec spec = {.cuts = {2}}, std::int64_t width = 8,
      const std::function<void(Json&)>& change = [](Json&) {}) {
    spec.model = small_model(width);
    Json plan = plan::to_json(make_plan(spec));
    change(plan);
    write_file(path() / "plan.json", dump_json(plan));
  }
  /// pp-run on synthetic data.
  Outcome run(std::vector<std::string> arguments, const Circumstances& what = {}) const {
    arguments.insert(arguments.end(), {"--data", "synthetic", "--synthetic-samples", "64"});
    return run_program(std::filesystem::path(PP_BIN) / "pp-run", arguments, path(), what);
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path()), {}));
  }
};

}  // namespace pp::test
