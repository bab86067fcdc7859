// pp-profile models: the built-in families, and one of them as a model document; pp-profile schema: the JSON
// Schema of a document, for editors and validators.
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/cli/table.h"
#include "apps/cli/terminal_text.h"
#include "apps/profile/commands.h"
#include "apps/profile/model_argument.h"
#include "libprofile/core/ops/op_table.h"
#include "libprofile/core/schema/document_schema.h"
#include "libprofile/model/families/families.h"
#include "librun/documents.h"

namespace pp::profile_tool {

namespace {

struct ModelsOptions {
  std::string model;
  std::string output;
  bool operations = false;
  bool markdown = false;
};

constexpr auto kModels = options(
    option<&ModelsOptions::model>(
        "model", "a family or a config.json of Hugging Face, with or without arguments, or a model.json",
        {.value = "MODEL"}),
    option<&ModelsOptions::output>("-o,--output", "write the model; - for stdout", {.value = "FILE"}),
    option<&ModelsOptions::operations>("--ops", "list the operations that a model.json may use"),
    option<&ModelsOptions::markdown>("--markdown",
                                     "with --ops: all that is known of each, as a table in Markdown"));

std::string argument_list(const model::FamilyRow& family) {
  std::string list;
  for (const model::FamilyArgument& argument : family.arguments)
    list.append(list.empty() ? "" : ",").append(model::to_text(argument));
  return list;
}

void list_families() {
  cli::Table table(
      {{"family", cli::Align::left}, {"arguments and defaults", cli::Align::left, cli::Overflow::wrap}});
  for (const model::FamilyRow& family : model::family_table())
    table.add({std::string(family.name), argument_list(family)});
  std::cout << table.text() << "\nUse as NAME or NAME:argument=value,...\n";
}

void list_operations() {
  cli::Table table({{"operation", cli::Align::left},
                    {"what it does", cli::Align::left, cli::Overflow::wrap},
                    {"attributes", cli::Align::left, cli::Overflow::wrap}});
  for (const OpRow& op : op_table()) {
    std::string attributes;
    for (const AttributeSpec& attribute : op.attributes) {
      attributes.append(attributes.empty() ? "" : ", ")
          .append(attribute.name)
          .append(attribute.required() ? "*" : "");
    }
    table.add({std::string(op.name), std::string(op.summary), attributes});
  }
  std::cout << table.text() << "\n* has no default\n";
}

Json families_json() {
  Json json = Json::array();
  for (const model::FamilyRow& family : model::family_table()) {
    Json arguments = Json::array();
    for (const model::FamilyArgument& argument : family.arguments) {
      arguments.push_back({{"name", argument.name},
                           {"summary", argument.summary},
                           {"default", argument.default_value},
                           {"least", argument.min},
                           {"most", argument.max},
                           {"whole", argument.whole}});
    }
    json.push_back({{"name", family.name}, {"summary", family.summary}, {"arguments", std::move(arguments)}});
  }
  return json;
}

/// `156`, `156, 12 trained`
std::string parameters_cell(const ResolvedModel& model, int layer) {
  const Bytes all = parameter_bytes(model, layer, DType::uint8),
              trained = trained_bytes(model, layer, DType::uint8);
  return std::to_string(all.value) + (trained == all ? "" : ", " + std::to_string(trained.value) + " trained");
}

void show_model(const ModelGraph& graph) {
  const ResolvedModel model = resolve(graph);
  cli::Table table({{"layer", cli::Align::left},
                    {"op", cli::Align::left},
                    {"output", cli::Align::left},
                    {"parameters"},
                    {"MFLOP"}});
  for (int l = 0; l < model.layer_count(); ++l) {
    const ResolvedLayer& layer = model.layers[static_cast<std::size_t>(l)];
    table.add({model.graph.layers[static_cast<std::size_t>(l)].name,
               model.graph.layers[static_cast<std::size_t>(l)].op, to_text(layer.outputs.front().shape),
               parameters_cell(model, l), cli::cell(layer.forward_flops.value / 1e6)});
  }
  std::cout << table.text() << '\n'
            << cli::shown(model.graph.name) << ": " << parameter_count(model) << " parameters\n";
}

/// What a model document may use, or the families.
void list(const ModelsOptions& options, const cli::Shell& shell) {
  if (shell.json) {
    std::cout << dump_json(options.operations ? operations_json() : families_json());
  } else if (!options.operations) {
    list_families();
  } else if (options.markdown) {
    std::cout << operations_markdown();
  } else {
    list_operations();
  }
}

void models(const ModelsOptions& options, const cli::Shell& shell) {
  if (options.operations || options.model.empty()) return list(options, shell);
  const ModelGraph graph = load_model(options.model);
  const std::string text = dump_json(to_json(graph));
  cli::Output output(options.output);
  output.write(text);
  if (output.is_stdout()) return;
  if (shell.json) {
    std::cout << text;
  } else {
    show_model(graph);
  }
}

struct SchemaOptions {
  std::string document;
  std::string output = "-";
  std::string directory;
};

std::vector<std::string> document_names() { return {schema_names().begin(), schema_names().end()}; }

constexpr auto kSchema = options(
    option<&SchemaOptions::document>("document", "one of", {.value = "DOCUMENT", .values = document_names}),
    option<&SchemaOptions::directory>("--directory", "write them all, as DIR/NAME.schema.json",
                                      {.value = "DIR"}),
    option<&SchemaOptions::output>("-o,--output", "write the schema; - for stdout", {.value = "FILE"}));

void write_all(const std::filesystem::path& directory) {
  std::filesystem::create_directories(directory);
  for (const std::string_view name : schema_names()) {
    cli::Output output(directory / (std::string(name) + ".schema.json"));
    output.write(dump_json(document_schema(name, document_keys())));
  }
}

void schema(const SchemaOptions& options, const cli::Shell& /*shell*/) {
  if (options.document.empty() == options.directory.empty())
    throw Error(ErrorKind::usage, "schema: name a document, or --directory for all of them");
  if (!options.directory.empty()) return write_all(options.directory);
  const Json schema = document_schema(options.document, document_keys());
  cli::Output output(options.output);
  output.write(dump_json(schema));
}

}  // namespace

void add_models(const cli::Command& app, cli::Shell& shell) {
  cli::add_command(
      app, shell, "models", "list the built-in models; show one, or write it as model.json", kModels, models,
      {"pp-profile models", "pp-profile models resnet18:image=32", "pp-profile models lenet5 -o model.json"});
}

void add_schema(const cli::Command& app, cli::Shell& shell) {
  cli::add_command(app, shell, "schema", "print the JSON Schema of a document", kSchema, schema,
                   {"pp-profile schema model", "pp-profile schema plan -o plan.schema.json",
                    "pp-profile schema --directory schemas"});
}

}  // namespace pp::profile_tool
