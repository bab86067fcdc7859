// sample-plan MODEL KEY=VALUE...: prints a plan by hand (tests/support/plans.h) for transcripts. MODEL is a
// model, a profile of one, or `small` (run_folder.h); the keys are those of PlanSpec that transcripts need.
#include <cstdio>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "libprofile/core/file.h"
#include "libprofile/core/json_reader.h"
#include "tests/apps/run_folder.h"

namespace {

pp::ModelGraph model_of(const std::string& name) {
  if (name == "small") return pp::test::small_model(8);
  const pp::Json json = pp::parse_json(pp::read_file(name));
  return pp::model_from_json(json.contains("model") ? json["model"] : json);
}

std::vector<int> numbers(const std::string& text) {
  std::vector<int> found;
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) found.push_back(std::stoi(item));
  return found;
}

}  // namespace

int main(int argc, char** argv) try {
  PlanSpec spec{.model = model_of(argc > 1 ? argv[1] : "")};
  const std::map<std::string, std::function<void(const std::string&)>> keys{
      {"cuts", [&](const std::string& value) { spec.cuts = numbers(value); }},
      {"replicas", [&](const std::string& value) { spec.replicas = numbers(value); }},
      {"schedule", [&](const std::string& value) { spec.schedule = value; }},
      {"mini_batch", [&](const std::string& value) { spec.mini_batch = std::stoi(value); }},
      {"micro_batches", [&](const std::string& value) { spec.micro_batches = std::stoi(value); }}};
  for (int i = 2; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::size_t equals = argument.find('=');
    keys.at(argument.substr(0, equals))(argument.substr(equals + 1));
  }
  std::fputs(pp::dump_json(pp::plan::to_json(make_plan(spec))).c_str(), stdout);
} catch (const std::exception& error) {
  std::fprintf(stderr, "sample-plan: %s\n", error.what());
  return 2;
}
