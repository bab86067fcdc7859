// pp-profile import: other planners' profiles as profile.json.
#include <array>
#include <filesystem>
#include <iostream>
#include <memory>

#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/profile/commands.h"
#include "apps/profile/tables.h"
#include "libplan/interop/pipedream_text.h"

namespace pp::profile_tool {
namespace {

enum class Format { pipedream };

struct Options {
  std::string file;
  std::string output;
  Format format = Format::pipedream;
  int batch_size = 1;
};

}  // namespace
}  // namespace pp::profile_tool

namespace pp {
template <>
struct EnumNames<profile_tool::Format> {
  static constexpr std::array table{std::pair{profile_tool::Format::pipedream, "pipedream"sv}};
};
}  // namespace pp

namespace pp::profile_tool {
namespace {

void import(const Options& options, const cli::Shell& shell) {
  const std::string name = std::filesystem::path(options.file).stem().string();
  const Profile profile = cli::load(options.file, [&](std::string_view text) {
    return plan::import_pipedream(text, name, options.batch_size);
  });
  const std::string text = dump_json(to_json(profile));
  cli::Output output(options.output);
  output.write(text);
  if (output.is_stdout()) return;
  std::cout << (shell.json ? text : profile_summary(profile));
}

}  // namespace

void add_import(CLI::App& app, cli::Shell& shell) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("import", "turn another planner's profile into profile.json");
  command->add_option("file", options->file, "the foreign file")->required()->type_name("FILE");
  command->add_option("-o,--output", options->output, "write the profile; - for stdout")->type_name("FILE");
  cli::add_enum(*command, "--format", options->format, "format of the file");
  command
      ->add_option("--batch-size", options->batch_size,
                   "samples per micro-batch of the foreign profile, which does not say")
      ->check(CLI::PositiveNumber);
  static constexpr std::array<std::string_view, 3> kExamples{
      "pp-profile import graph.txt --format pipedream -o profile.json",
      "pp-profile import graph.txt --batch-size 64 -o profile.json", "pp-profile import graph.txt --json"};
  cli::add_common_options(*command, shell, kExamples);
  command->final_callback([options, &shell] { import(*options, shell); });
}

}  // namespace pp::profile_tool
