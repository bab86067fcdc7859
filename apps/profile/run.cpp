// pp-profile [run] MODEL: the layer profiler.
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/cli/progress.h"
#include "apps/cli/ranks.h"
#include "apps/profile/commands.h"
#include "apps/profile/model_argument.h"
#include "apps/profile/run_ranks.h"
#include "apps/profile/tables.h"
#include "libprofile/device/process.h"
#include "libprofile/measure/profiler.h"
#include "librun/overhead.h"

namespace pp::profile_tool {
namespace {

enum class Mode { in_place, isolated };

}  // namespace
}  // namespace pp::profile_tool

namespace pp {
template <>
struct EnumNames<profile_tool::Mode> {
  static constexpr std::array table{std::pair{profile_tool::Mode::in_place, "in-place"sv},
                                    std::pair{profile_tool::Mode::isolated, "isolated"sv}};
};
}  // namespace pp

namespace pp::profile_tool {
namespace {

struct RunOptions {
  std::string model;
  std::string output;
  std::string device = "cpu:0";
  std::string sizes = "1,2,4,8,16";
  Mode mode = Mode::in_place;
  bool concurrent = false;
  bool quick = false;
  std::string cluster;  ///< under mpirun: gets the speeds
  profile::ProfileOptions profile;
};

class TerminalObserver : public profile::Observer {
 public:
  explicit TerminalObserver(const cli::Shell& shell) : line_(shell) {}
  void progress(std::string_view phase, double done, Seconds remaining) override {
    line_.update(phase, done, "about " + to_text(remaining) + " left");
  }
  void warning(std::string_view text) override {
    line_.clear();
    cli::warn(text);
  }

 private:
  cli::ProgressLine line_;
};

profile::ProfileOptions settings_of(const RunOptions& options) {
  profile::ProfileOptions settings = options.profile;
  settings.mode = options.mode == Mode::isolated ? ProfileMode::isolated : ProfileMode::in_place;
  const profile::MachineDevices machine = profile::machine_devices();
  settings.devices = profile::parse_device_set(options.device, machine);
  if (options.concurrent) settings.devices = profile::all_devices(settings.devices, machine);
  settings.micro_batch_sizes.clear();
  if (options.sizes == "auto") {
    settings.size_choice = profile::SizeChoice::automatic;
  } else {
    for (int size : cli::parse_counts(options.sizes, ',', "--micro-batch-sizes"))
      settings.micro_batch_sizes.push_back(size);
  }
  return options.quick ? profile::quick(settings) : settings;
}

Profile measure(const ModelGraph& model, const profile::ProfileOptions& settings, const cli::Shell& shell) {
  TerminalObserver observer(shell);
  Profile measured = profile::profile_model(model, settings, observer);
  observer.progress("timing operations", 0, Seconds(1));
  measured.operation_overhead = run::measure_overhead(settings.devices);
  measured.context["command"] = shell.command_line;
  return measured;
}

/// The next devices behind those of the ranks that see the same ones.
profile::DeviceSet devices_beside(profile::DeviceSet devices, const RankPlace& place) {
  const profile::MachineDevices machine = profile::machine_devices();
  const bool cuda = devices.kind == DeviceKind::cuda;
  devices.first += place.beside * devices.count * (cuda ? 1 : devices.cores);
  const int there = cuda ? machine.cuda() : static_cast<int>(machine.cores.size());
  if (devices.first >= there)
    throw Error(ErrorKind::device, "no " + std::string(name_of(devices.kind)) +
                                       " device is left: the ranks of " + place.host + " share " +
                                       std::to_string(there) +
                                       "; start fewer there, or bind them to cores of their own");
  return devices;
}

/// Rank 0 has opened all files before one of them measures.
void measure_on_ranks(const RunOptions& options, const cli::Shell& shell, run::Peers& peers) {
  profile::ProfileOptions settings;
  ModelGraph model;
  std::vector<RankSight> sights;
  for (const Json& one : exchange(peers, [&] {
         settings = settings_of(options);
         model = load_model(options.model);
         return Json{profile::measurement_context()["host"], profile::seen_devices(settings.devices.kind)};
       }))
    sights.push_back({one[0], one[1]});
  std::vector<RankDevice> ranks;
  for (const Json& one : exchange(peers, [&] {
         settings.devices = devices_beside(settings.devices, place_of(sights, peers.rank()));
         const ProfiledDevice device = profile::described(settings.devices);
         return Json{name_of(device.kind), device.name, device.cores_per_device};
       })) {
    ProfiledDevice device{.kind = *find_enum<DeviceKind>(one[0].get<std::string>()),
                          .name = one[1],
                          .cores_per_device = one[2],
                          .memory = {}};
    ranks.push_back({place_of(sights, static_cast<int>(ranks.size())), std::move(device)});
  }
  std::optional<ClassFiles> files;
  exchange(peers, [&] {
    if (peers.rank() == 0) files.emplace(std::move(ranks), options.output, options.cluster);
    return Json();
  });
  cli::Shell mine = shell;
  mine.quiet = mine.quiet || peers.rank() != 0;
  const auto profiles = gather_profiles(peers, [&] { return measure(model, settings, mine); });
  if (files) files->write(profiles);
}

void run_on_ranks(const RunOptions& options, const cli::Shell& shell) {
  cli::set_up_mpi();
  const std::unique_ptr<run::Peers> peers = run::join_mpi_peers(cli::launched_as());
  try {
    measure_on_ranks(options, shell, *peers);
  } catch (const SaidByFirst&) {
  }
}

void run(const RunOptions& options, const cli::Shell& shell) {
  if (cli::launched_with_ranks()) return run_on_ranks(options, shell);
  if (!options.cluster.empty())
    throw Error(ErrorKind::usage,
                "--cluster gets the speeds of several ranks; start with mpirun, or leave it out");
  const profile::ProfileOptions settings = settings_of(options);
  const ModelGraph model = load_model(options.model);
  cli::Output output(options.output);
  write_profile(measure(model, settings, shell), output, shell);
}

}  // namespace

void add_run(const cli::Command& app, cli::Shell& shell) {
  auto options = std::make_shared<RunOptions>();
  const cli::Command command =
      app.add_subcommand("run", "measure a model layer by layer (the default command)");
  command
      .add_option("model", options->model,
                  "a model.json, a config.json of Hugging Face (config.json:sequence=512,layers=4), or a "
                  "built-in family: "
                  "`pp-profile models` lists them")
      .required()
      .type_name("MODEL");
  command.add_option("-o,--output", options->output, "write the profile; - for stdout").type_name("FILE");
  command
      .add_option(
          "--micro-batch-sizes", options->sizes,
          "samples per micro-batch to measure, rising; auto: 1, 2, 4, ... as far as memory and budget go")
      .type_name("LIST");
  command
      .add_option("--device", options->device,
                  "cpu:0 (one core), cpu:2x1 (two devices of one core, both busy), cuda:0")
      .type_name("DEVICES");
  command
      .add_option("--cluster", options->cluster,
                  "under mpirun: write each rank's speed into this file of `pp-profile links`")
      .type_name("FILE");
  command.add_flag("--concurrent", options->concurrent,
                   "as many devices of this kind as the machine has cores for, all busy");
  cli::add_enum(command, "--mode", options->mode,
                "the whole model as it will run, or each layer alone, for a model that does not fit");
  cli::add_enum(command, "--dtype", options->profile.dtype, "floating type of weights and activations");
  cli::add_enum(command, "--memory-format", options->profile.memory_format,
                "of tensors of four dimensions; plans of the profile train in it");
  command
      .add_option_function(
          "--autocast",
          [options](const std::string& text) {
            options->profile.autocast = cli::typed_name<Autocast>(text, "--autocast");
          },
          "measure under LibTorch's autocast to this type: " + list_names<Autocast>() +
              "; plans of the profile run under it")
      .type_name("NAME");
  cli::add_enum(command, "--kernels", options->profile.kernels,
                "what runs products and convolutions on a CPU: the faster kernel of each here, LibTorch's own "
                "choice, or oneDNN's products; plans of the profile run the same");
  command.add_flag("--quick", options->quick, "a rough profile in seconds: for demos and first tries");
  command
      .add_option("--precision", options->profile.precision,
                  "stop when the median is known to this share of itself, with 95 % confidence")
      .check(cli::number_between(0.001, 0.5));
  cli::add_seconds(command, "--budget", options->profile.budget_per_size, "longest time per micro-batch size")
      .default_str(to_text(options->profile.budget_per_size));
  command.add_option("--seed", options->profile.seed, "of weights and inputs").check(cli::whole_number(0));
  static constexpr std::array<std::string_view, 3> kExamples{
      "pp-profile lenet5 -o profile.json",
      "pp-profile vgg11:image=32,classes=10 --device cpu:2x1 --micro-batch-sizes 4,8,16 -o vgg11.json",
      "pp-profile my-model.json --quick --json"};
  cli::add_common_options(command, shell, kExamples);
  command.final_callback([options, &shell] { run(*options, shell); });
}

}  // namespace pp::profile_tool
