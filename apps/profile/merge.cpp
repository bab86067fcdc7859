// pp-profile merge: the micro-batch sizes of two profiles in one.
#include "libprofile/report/merge.h"

#include <array>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/profile/commands.h"
#include "apps/profile/tables.h"

namespace pp::profile_tool {
namespace {

struct MergeOptions {
  std::string first, second;
  std::string output;
  profile::Overlap overlap = profile::Overlap::refuse;
};

void merge(const MergeOptions& options, const cli::Shell& shell) {
  const Profile first = cli::load(options.first, parse_profile);
  const Profile second = cli::load(options.second, parse_profile);
  cli::Output output(options.output);
  const Profile merged = profile::merge_profiles(first, second, options.overlap);
  const std::string text = dump_json(to_json(merged));
  output.write(text);
  if (output.is_stdout()) return;
  std::cout << (shell.json ? text : profile_summary(merged));
}

}  // namespace

void add_merge(const cli::Command& app, cli::Shell& shell) {
  auto options = std::make_shared<MergeOptions>();
  const cli::Command command = app.add_subcommand("merge", "add the micro-batch sizes of another profile");
  command.add_option("first", options->first, "a profile.json").required().type_name("FIRST");
  command.add_option("second", options->second, "one of the same model on the same kind of device")
      .required()
      .type_name("SECOND");
  command.add_option("-o,--output", options->output, "write the profile; - for stdout")
      .required()
      .type_name("FILE");
  cli::add_enum(command, "--overlap", options->overlap, "whose times to keep where both have a size");
  static constexpr std::array<std::string_view, 3> kExamples{
      "pp-profile merge small.json large.json -o profile.json",
      "pp-profile merge old.json new.json --overlap second -o profile.json",
      "pp-profile merge small.json large.json -o - > profile.json"};
  cli::add_common_options(command, shell, kExamples);
  command.final_callback([options, &shell] { merge(*options, shell); });
}

}  // namespace pp::profile_tool
