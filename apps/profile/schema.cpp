// pp-profile schema: the JSON Schema of a document, for editors and validators.
#include <array>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/output.h"
#include "apps/profile/commands.h"
#include "libprofile/core/schema/document_schema.h"

namespace pp::profile_tool {
namespace {

struct Options {
  std::string document;
  std::string output = "-";
};

void schema(const Options& options) {
  const Json schema = document_schema(options.document);
  cli::Output output(options.output);
  output.write(dump_json(schema));
}

}  // namespace

void add_schema(const cli::Command& app, cli::Shell& shell) {
  auto options = std::make_shared<Options>();
  const cli::Command command = app.add_subcommand("schema", "print the JSON Schema of a document");
  std::string names;
  for (const std::string_view name : schema_names()) names.append(names.empty() ? "" : ", ").append(name);
  command.add_option("document", options->document, "one of " + names).required().type_name("DOCUMENT");
  command.add_option("-o,--output", options->output, "write the schema; - for stdout").type_name("FILE");
  static constexpr std::array<std::string_view, 3> kExamples{
      "pp-profile schema model", "pp-profile schema plan -o plan.schema.json", "pp-profile schema report"};
  cli::add_common_options(command, shell, kExamples);
  command.final_callback([options] { schema(*options); });
}

}  // namespace pp::profile_tool
