// pp-profile estimate: a profile by arithmetic, for a device that is not at hand.
#include "libprofile/estimate/estimate.h"

#include <array>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/profile/commands.h"
#include "apps/profile/model_argument.h"
#include "apps/profile/tables.h"

namespace pp::profile_tool {
namespace {

struct Options {
  std::string model;
  std::string device;
  std::string output;
  std::string sizes = "1,2,4,8,16";
  DType dtype = DType::float32;
};

profile::EstimateOptions settings_of(const Options& options) {
  profile::EstimateOptions settings{.automatic_sizes = options.sizes == "auto", .dtype = options.dtype};
  if (settings.automatic_sizes) return settings;
  settings.micro_batch_sizes.clear();
  for (const int size : cli::parse_counts(options.sizes, ',', "--micro-batch-sizes"))
    settings.micro_batch_sizes.push_back(size);
  return settings;
}

void estimate(const Options& options, const cli::Shell& shell) {
  const profile::EstimateOptions settings = settings_of(options);
  const profile::DeviceSpec device = cli::load(options.device, profile::parse_device_spec);
  const ModelGraph model = load_model(options.model);
  cli::Output output(options.output);
  Profile profile = profile::estimate_profile(model, device, settings);
  profile.context["command"] = shell.command_line;
  write_profile(profile, output, shell);
}

}  // namespace

void add_estimate(const cli::Command& app, cli::Shell& shell) {
  auto options = std::make_shared<Options>();
  const cli::Command command =
      app.add_subcommand("estimate", "a profile from FLOPs and bytes, for a device that is not at hand");
  command
      .add_option("model", options->model,
                  "a model.json, a config.json of Hugging Face (config.json:sequence=512,layers=4), or a "
                  "built-in family: "
                  "`pp-profile models` lists them")
      .required()
      .type_name("MODEL");
  command
      .add_option("--device-spec", options->device,
                  "what is known of the device: configs/devices has some, libprofile/estimate the keys")
      .required()
      .type_name("FILE");
  command.add_option("-o,--output", options->output, "write the profile; - for stdout").type_name("FILE");
  command
      .add_option("--micro-batch-sizes", options->sizes,
                  "samples per micro-batch, rising; auto: 1, 2, 4, ... as long as every layer fits the device")
      .type_name("LIST");
  cli::add_enum(command, "--dtype", options->dtype, "floating type of weights and activations");
  static constexpr std::array<std::string_view, 3> kExamples{
      "pp-profile estimate vgg16 --device-spec configs/devices/a100.json -o profile.json",
      "pp-profile estimate gpt2:layers=96,width=12288,heads=96,sequence=2048,tied=0 "
      "--device-spec configs/devices/h100.json --dtype bfloat16 --micro-batch-sizes 1,2 -o gpt3.json",
      "pp-profile estimate config.json:sequence=8192 --device-spec configs/devices/h100.json --dtype bfloat16 "
      "-o profile.json"};
  cli::add_common_options(command, shell, kExamples);
  command.final_callback([options, &shell] { estimate(*options, shell); });
}

}  // namespace pp::profile_tool
