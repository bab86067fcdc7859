// pp-profile schema: the JSON Schema of a document, for editors and validators.
#include <array>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/output.h"
#include "apps/profile/commands.h"
#include "libprofile/core/schema/document_schema.h"

namespace pp::profile_tool {
namespace {

struct SchemaOptions {
  std::string document;
  std::string output = "-";
  std::string directory;
};

void write_all(const std::filesystem::path& directory) {
  std::filesystem::create_directories(directory);
  for (const std::string_view name : schema_names()) {
    cli::Output output(directory / (std::string(name) + ".schema.json"));
    output.write(dump_json(document_schema(name)));
  }
}

void schema(const SchemaOptions& options) {
  if (options.document.empty() == options.directory.empty())
    throw Error(ErrorKind::usage, "schema: name a document, or --directory for all of them");
  if (!options.directory.empty()) return write_all(options.directory);
  const Json schema = document_schema(options.document);
  cli::Output output(options.output);
  output.write(dump_json(schema));
}

}  // namespace

void add_schema(const cli::Command& app, cli::Shell& shell) {
  auto options = std::make_shared<SchemaOptions>();
  const cli::Command command = app.add_subcommand("schema", "print the JSON Schema of a document");
  std::string names;
  for (const std::string_view name : schema_names()) names.append(names.empty() ? "" : ", ").append(name);
  command.add_option("document", options->document, "one of " + names)
      .type_name("DOCUMENT")
      .choices({schema_names().begin(), schema_names().end()});
  command.add_option("--directory", options->directory, "write them all, as DIR/NAME.schema.json")
      .type_name("DIR");
  command.add_option("-o,--output", options->output, "write the schema; - for stdout").type_name("FILE");
  static constexpr std::array<std::string_view, 3> kExamples{"pp-profile schema model",
                                                             "pp-profile schema plan -o plan.schema.json",
                                                             "pp-profile schema --directory schemas"};
  cli::add_common_options(command, shell, kExamples);
  command.final_callback([options] { schema(*options); });
}

}  // namespace pp::profile_tool
