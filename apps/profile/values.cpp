// pp-profile values: what a model computes with given weights, for those who compare it with something else, as
// scripts/import-torch does with the module.
#include "librun/values.h"

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/cli/options.h"
#include "apps/profile/commands.h"
#include "apps/profile/model_argument.h"
#include "libprofile/core/json_reader.h"

namespace pp::profile_tool {

namespace {

struct ValuesOptions {
  std::string model, weights;
  bool loss = false;
};

run::ValuesRequest request_of(const std::string& line) {
  const Json json = parse_json(line);
  ObjectReader reader(json, "");
  const run::ValuesRequest request{
      .data = reader.text("data"),
      .to = reader.text("to"),
      .training = reader.boolean("training"),
      .layers = reader.boolean("layers"),
      .gradients = reader.boolean("gradients"),
      .micro_batch_size = static_cast<int>(reader.integer("micro_batch_size", {.min = 0, .max = 1 << 20}))};
  reader.finish();
  return request;
}

void values(const ValuesOptions& options, const cli::Shell& /*shell*/) {
  const run::Values answer = run::open_values(load_model(options.model), options.weights, options.loss);
  for (std::string line; std::getline(std::cin, line);) {
    Json said = Json::object();
    try {
      answer(request_of(line));
    } catch (const Error& error) {
      said["error"] = error.what();
    }
    std::cout << dump_json_compact(said) << '\n' << std::flush;
  }
}

constexpr auto kValues =
    options(option<&ValuesOptions::model>("model", "a model.json", {.value = "MODEL", .required = true}),
            option<&ValuesOptions::weights>("--weights", "all its parameters and buffers, as safetensors",
                                            {.value = "FILE", .required = true}),
            option<&ValuesOptions::loss>("--loss", "with its loss, from which gradients begin"));

}  // namespace

void add_values(const cli::Command& app, cli::Shell& shell) {
  cli::add_command(app, shell, "values", "what a model computes; a request a line on stdin (librun/values.h)",
                   kValues, values, {"pp-profile values model.json --weights weights.safetensors < requests"});
}

}  // namespace pp::profile_tool
