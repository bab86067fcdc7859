// pp-profile import: other planners' profiles as profile.json.
#include <array>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/profile/commands.h"
#include "apps/profile/tables.h"
#include "libplan/peers/dnn_partitioning.h"
#include "libplan/peers/pipedream_text.h"
#include "libplan/peers/piper_json.h"
#include "libplan/peers/sailor_json.h"

namespace pp::profile_tool {
namespace {

enum class Format { automatic, pipedream, dapple, dnn_partitioning, piper, sailor, kineto };

struct ImportOptions {
  std::string file;
  std::string output;
  Format format = Format::automatic;
  std::string time_unit;
  int batch_size = 0;  ///< 0: as the file's name says, else 1
  std::string entry, sizes;
};

}  // namespace
}  // namespace pp::profile_tool

namespace pp {
template <>
struct EnumNames<profile_tool::Format> {
  static constexpr std::array table{std::pair{profile_tool::Format::automatic, "auto"sv},
                                    std::pair{profile_tool::Format::pipedream, "pipedream"sv},
                                    std::pair{profile_tool::Format::dapple, "dapple"sv},
                                    std::pair{profile_tool::Format::dnn_partitioning, "dnn-partitioning"sv},
                                    std::pair{profile_tool::Format::piper, "piper"sv},
                                    std::pair{profile_tool::Format::sailor, "sailor"sv},
                                    std::pair{profile_tool::Format::kineto, "kineto"sv}};
};
}  // namespace pp

namespace pp::profile_tool {
namespace {

/// JSON is one of three, told apart by keys that the others have not.
Format recognised(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] != '{') return Format::pipedream;
  if (text.find("\"traceEvents\"") != std::string_view::npos) return Format::kineto;
  return text.find("\"TMPCs\"") != std::string_view::npos ? Format::piper : Format::dnn_partitioning;
}

plan::TimeUnit time_unit(const ImportOptions& options) {
  if (options.time_unit.empty()) {
    throw Error(ErrorKind::usage,
                "Piper's files do not say their unit of time; add --time-unit s or --time-unit ms");
  }
  return typed_name<plan::TimeUnit>(options.time_unit, "--time-unit");
}

Profile import_sailor(std::string_view text, const ImportOptions& options) {
  if (options.entry.empty() || options.sizes.empty()) {
    throw Error(ErrorKind::usage,
                "Sailor's files have times of several models and GPUs, and no bytes; add --entry MODEL/GPU and "
                "--sizes PROFILE, which pp-profile estimate makes of the model");
  }
  return plan::import_sailor(text, options.entry, cli::load(options.sizes, parse_profile));
}

Profile import_as(Format format, std::string_view text, const std::string& name, const ImportOptions& options) {
  const int batch_size = options.batch_size > 0 ? options.batch_size : plan::batch_size_in_name(name);
  switch (format) {
    case Format::automatic: return import_as(recognised(text), text, name, options);
    case Format::pipedream:
    case Format::dapple: return plan::import_pipedream(text, name, batch_size);
    case Format::dnn_partitioning: return plan::import_dnn_partitioning(text, name, batch_size);
    case Format::piper: return plan::import_piper(text, name, batch_size, time_unit(options));
    case Format::sailor: return import_sailor(text, options);
    case Format::kineto:
      if (options.sizes.empty())
        throw Error(
            ErrorKind::usage,
            "a trace has times alone; add --sizes PROFILE of the same model and device, which pp-profile "
            "estimate makes");
      return import_kineto(text, cli::load(options.sizes, parse_profile), options.batch_size);
  }
  throw Error(ErrorKind::internal, "unknown format");
}

constexpr auto kImport = options(
    option<&ImportOptions::file>("file", "the foreign file", {.value = "FILE", .required = true}),
    option<&ImportOptions::output>("-o,--output", "write the profile; - for stdout", {.value = "FILE"}),
    option<&ImportOptions::format>("--format", "format of the file"),
    option<&ImportOptions::batch_size>(
        "--batch-size",
        "samples per micro-batch of the foreign profile; else N of `-pbs-N` in its name, else 1", {.least = 1}),
    option<&ImportOptions::time_unit>("--time-unit", "of Piper's files",
                                      {.value = "UNIT", .values = all_names<plan::TimeUnit>}),
    option<&ImportOptions::entry>("--entry", "of Sailor's files: whose times, such as OPT-350/GH-96",
                                  {.value = "MODEL/GPU"}),
    option<&ImportOptions::sizes>(
        "--sizes", "of Sailor's files and of kineto, which have no bytes: a profile of the same model that has",
        {.value = "PROFILE"}));

void import(const ImportOptions& options, const cli::Shell& shell) {
  const std::string name =
      options.file == "-" ? "imported" : std::filesystem::path(options.file).stem().string();
  const Profile profile = cli::load(
      options.file, [&](std::string_view text) { return import_as(options.format, text, name, options); });
  const std::string text = dump_json(to_json(profile));
  cli::Output output(options.output);
  output.write(text);
  if (output.is_stdout()) return;
  std::cout << (shell.json ? text : profile_summary(profile));
}

}  // namespace

void add_import(const cli::Command& app, cli::Shell& shell) {
  cli::add_command(
      app, shell, "import", "turn another planner's profile, or a trace of PyTorch's, into profile.json",
      kImport, import,
      {"pp-profile import graph.txt --format pipedream -o profile.json",
       "pp-profile import trace.json --format kineto --sizes sizes.json -o profile.json",
       "pp-profile import profiles.json --format sailor --entry OPT-350/GH-96 --sizes sizes.json -o "
       "profile.json"});
}

}  // namespace pp::profile_tool
