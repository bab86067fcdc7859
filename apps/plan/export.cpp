// pp-plan export: a plan in another planner's or trainer's format.
#include <array>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/cli/progress.h"
#include "apps/plan/commands.h"
#include "libplan/interop/trainer_export.h"
#include "libplan/peers/pipedream_text.h"

namespace pp::plan_tool {
enum class ExportFormat {
  pipedream,
  torch_pipelining,
  megatron,
  bridge,
  verl,
  nemo_rl,
  deepspeed,
  torchtitan,
  automodel
};
}  // namespace pp::plan_tool

namespace pp {
template <>
struct EnumNames<plan_tool::ExportFormat> {
  static constexpr std::array table{std::pair{plan_tool::ExportFormat::pipedream, "pipedream"sv},
                                    std::pair{plan_tool::ExportFormat::torch_pipelining, "torch-pipelining"sv},
                                    std::pair{plan_tool::ExportFormat::megatron, "megatron"sv},
                                    std::pair{plan_tool::ExportFormat::bridge, "megatron-bridge"sv},
                                    std::pair{plan_tool::ExportFormat::verl, "verl"sv},
                                    std::pair{plan_tool::ExportFormat::nemo_rl, "nemo-rl"sv},
                                    std::pair{plan_tool::ExportFormat::deepspeed, "deepspeed"sv},
                                    std::pair{plan_tool::ExportFormat::torchtitan, "torchtitan"sv},
                                    std::pair{plan_tool::ExportFormat::automodel, "nemo-automodel"sv}};
};
}  // namespace pp

namespace pp::plan_tool {
namespace {

struct ExportOptions {
  std::string plan;
  std::string format = "pipedream";
  std::string profile;
  std::string output;
  bool lossy = false;
};

constexpr auto kExport = options(
    option<&ExportOptions::plan>("plan", "a plan.json", {.value = "PLAN", .required = true}),
    option<&ExportOptions::format>(
        "--format",
        "torch-pipelining: modules and schedule for torch.distributed.pipelining, with a launcher; megatron, "
        "megatron-bridge, verl, nemo-rl, deepspeed, torchtitan, nemo-automodel: what these trainers are "
        "started "
        "with, and a README.md of what was not modelled; pipedream: its stage text",
        {.value = "FORMAT"}),
    option<&ExportOptions::profile>("--profile", "pipedream: the profile that the plan was made from",
                                    {.value = "PROFILE"}),
    option<&ExportOptions::lossy>("--lossy", "leave out what the format cannot say, with a line for each"),
    option<&ExportOptions::output>("-o,--output",
                                   "pipedream: the file, - for stdout, which is the default; of trainers: a "
                                   "folder (megatron without one: its arguments on stdout)",
                                   {.value = "FILE"}));

std::string pipedream_text(const ExportOptions& options, const plan::Plan& plan) {
  if (options.profile.empty())
    throw Error(ErrorKind::usage, "--format pipedream needs --profile: times and sizes stand in its lines");
  const Profile profile = cli::load(options.profile, parse_profile);
  return plan::export_pipedream(plan, profile);
}

void say_losses(const plan::TrainerExport& out) {
  for (const std::string& what : out.lost) cli::warn("left out: " + what);
  for (const std::string& what : out.warnings) cli::warn(what + "; fill it in before a run");
}

/// Each file whole, into a folder that is made where it is missing.
void write_folder(const std::string& folder, const plan::TrainerExport& out) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) throw Error(ErrorKind::usage, folder + ": " + failed.message() + "; -o names a folder");
  std::vector<std::unique_ptr<cli::Output>> files;
  for (const plan::ExportedFile& file : out.files)
    files.push_back(std::make_unique<cli::Output>((std::filesystem::path(folder) / file.name).string()));
  for (std::size_t i = 0; i < files.size(); ++i) files[i]->write(out.files[i].content);
}

plan::TrainerExport trainer_export(ExportFormat format, const plan::Plan& plan, plan::Losses losses) {
  switch (format) {
    case ExportFormat::torch_pipelining: return plan::export_torch_pipelining(plan, losses);
    case ExportFormat::bridge: return plan::export_megatron_bridge(plan, losses);
    case ExportFormat::verl: return plan::export_verl(plan, losses);
    case ExportFormat::nemo_rl: return plan::export_nemo_rl(plan, losses);
    case ExportFormat::deepspeed: return plan::export_deepspeed(plan, losses);
    case ExportFormat::torchtitan: return plan::export_torchtitan(plan, losses);
    case ExportFormat::automodel: return plan::export_automodel(plan, losses);
    case ExportFormat::megatron:
    case ExportFormat::pipedream: break;
  }
  return plan::export_megatron(plan, losses);
}

void export_plan(const ExportOptions& options, const cli::Shell& /*shell*/) {
  const auto format = typed_name<ExportFormat>(options.format, "--format");
  const auto losses = options.lossy ? plan::Losses::leave_out : plan::Losses::refuse;
  const plan::Plan plan = cli::load(options.plan, plan::parse_plan);
  with_context(cli::input_name(options.plan), [&] { plan::check_plan(plan); });
  if (format == ExportFormat::pipedream) {
    cli::Output output(options.output.empty() ? "-" : options.output);
    return output.write(pipedream_text(options, plan));
  }
  const bool to_stdout = options.output.empty() || options.output == "-";
  if (to_stdout && format != ExportFormat::megatron) {
    throw Error(ErrorKind::usage,
                "--format " + options.format + " writes several files; name their folder with -o");
  }
  const plan::TrainerExport out = trainer_export(format, plan, losses);
  if (to_stdout) {
    cli::Output("-").write(out.files.front().content);
  } else {
    write_folder(options.output, out);
  }
  say_losses(out);
}

}  // namespace

void add_export(const cli::Command& app, cli::Shell& shell) {
  cli::add_command(app, shell, "export", "write a plan for other trainers and planners", kExport, export_plan,
                   {"pp-plan export plan.json --format torch-pipelining -o exported",
                    "pp-plan export plan.json --format megatron -o exported",
                    "pp-plan export plan.json --profile profile.json -o graph.txt"});
}

}  // namespace pp::plan_tool
