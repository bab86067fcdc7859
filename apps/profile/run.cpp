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

using Profiling = profile::ProfileOptions;
constexpr auto kRun = options(
    option<&RunOptions::model>("model", kModelHelp, {.value = "MODEL", .required = true}),
    option<&RunOptions::output>("-o,--output", "write the profile; - for stdout", {.value = "FILE"}),
    option<&RunOptions::sizes>(
        "--micro-batch-sizes",
        "samples per micro-batch to measure, rising; auto: 1, 2, 4, ... as far as memory and budget go",
        {.value = "LIST"}),
    option<&RunOptions::device>("--device",
                                "cpu:0 (one core), cpu:2x1 (two devices of one core, both busy), cuda:0",
                                {.value = "DEVICES"}),
    option<&RunOptions::cluster>("--cluster",
                                 "under mpirun: write each rank's speed into this file of `pp-profile links`",
                                 {.value = "FILE"}),
    option<&RunOptions::concurrent>("--concurrent",
                                    "as many devices of this kind as the machine has cores for, all busy"),
    option<&RunOptions::mode>(
        "--mode", "the whole model as it will run, or each layer alone, for a model that does not fit"),
    option<&RunOptions::profile, &Profiling::dtype>("--dtype", "floating type of weights and activations"),
    option<&RunOptions::profile, &Profiling::memory_format>(
        "--memory-format", "of tensors of four dimensions; plans of the profile train in it"),
    option<&RunOptions::profile, &Profiling::autocast>(
        "--autocast",
        "measure under LibTorch's autocast to this type, under which plans of the profile run then"),
    option<&RunOptions::profile, &Profiling::kernels>("--kernels",
                                                      "what runs products and convolutions on a CPU: the "
                                                      "faster kernel of each here, LibTorch's own choice, or "
                                                      "oneDNN's products; plans of the profile run the same"),
    option<&RunOptions::quick>("--quick", "a rough profile in seconds: for demos and first tries"),
    option<&RunOptions::profile, &Profiling::precision>(
        "--precision", "stop when the median is known to this share of itself, with 95 % confidence",
        {.least = 0.001, .most = 0.5}),
    option<&RunOptions::profile, &Profiling::budget_per_size>("--budget", "longest time per micro-batch size"),
    option<&RunOptions::profile, &Profiling::seed>("--seed", "of weights and inputs", {.least = 0}));

}  // namespace

void add_run(const cli::Command& app, cli::Shell& shell) {
  cli::add_command(
      app, shell, "run", "measure a model layer by layer (the default command)", kRun, run,
      {"pp-profile lenet5 -o profile.json",
       "pp-profile vgg11:image=32,classes=10 --device cpu:2x1 --micro-batch-sizes 4,8,16 -o vgg11.json",
       "pp-profile my-model.json --quick --json"});
}

}  // namespace pp::profile_tool
