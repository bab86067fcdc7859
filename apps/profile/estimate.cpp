// pp-profile estimate: a profile by arithmetic, for a device that is not at hand.
#include "libprofile/estimate/estimate.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/cli/arguments.h"
#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/profile/commands.h"
#include "apps/profile/model_argument.h"
#include "apps/profile/tables.h"

namespace pp::profile_tool {
namespace {

struct EstimateOptions {
  std::string model;
  std::string device;
  std::string trainer;
  std::string output;
  std::string sizes = "1,2,4,8,16";
  std::optional<RunType> dtype;
  int tensor = 1, context_parallel = 1, expert_parallel = 1, expert_nodes = 1, shard_degree = 1;
  Sharding shard = Sharding::full;
  std::optional<double> imbalance;
  bool whole_positions = false;
  std::string checkpoint{name_of(profile::Checkpoint::none)};
  int context = 0;
  std::string tensor_link, tensor_latency;
  std::string context_link, context_latency;
  std::string expert_link, expert_latency;
  std::string shard_link, shard_latency;
};

/// What the command line says of it, by `--tensor-link` or `--context-link`, the rest from the device's file.
std::optional<Link> link_of(const std::string& of, const std::string& rate, const std::string& latency,
                            const profile::DeviceSpec& device) {
  if (rate.empty() && latency.empty()) return device.tensor_link;
  if (rate.empty() && !device.tensor_link) {
    throw Error(ErrorKind::usage, of + "-latency " + latency + " is of a link that device " + device.name +
                                      " does not have; give its rate with " + of + "-link, too");
  }
  Link link = device.tensor_link.value_or(Link{});
  if (!rate.empty()) link.bandwidth = parse_bandwidth(rate, of + "-link");
  if (!latency.empty()) link.latency = parse_seconds(latency, of + "-latency");
  return link;
}

/// Also by the names that people type: bf16, fp8, mxfp8, nvfp4.
RunType typed_type(const std::string& text) {
  for (const auto& [type, alias] : Aliases<DType>::table)
    if (alias == text) return type;
  if (text == "fp8") return NarrowType::float8;
  if (text == "mxfp8") return NarrowType::mxfloat8;
  if (text == "nvfp4") return NarrowType::float4;
  return parse_run_type(text, "--dtype", ErrorKind::usage);
}

/// As typed; else that of the model's config.json, if the device has rates for it.
RunType type_for(const EstimateOptions& options, const profile::DeviceSpec& device) {
  if (options.dtype) return *options.dtype;
  const DType declared = declared_type(options.model).value_or(DType::float32);
  const bool known = std::ranges::count(device.types, declared, &profile::TypeRates::dtype) > 0;
  return known ? declared : DType::float32;
}

profile::EstimateOptions settings_of(const EstimateOptions& options, const profile::DeviceSpec& device) {
  profile::EstimateOptions settings{
      .automatic_sizes = options.sizes == "auto",
      .dtype = type_for(options, device),
      .tensor_degree = options.tensor,
      .context_degree = options.context_parallel,
      .expert_degree = options.expert_parallel,
      .expert_nodes = options.expert_nodes,
      .shard_group = {options.shard_degree, options.shard},
      .expert_imbalance = options.imbalance,
      .sequence_parallel = !options.whole_positions,
      .checkpoint = typed_name<profile::Checkpoint>(options.checkpoint, "--checkpoint"),
      .trainer = load_trainer(options.trainer, device.kind),
      .tensor_link = link_of("--tensor", options.tensor_link, options.tensor_latency, device),
      .context_link = link_of("--context", options.context_link, options.context_latency, device),
      .expert_link = link_of("--expert", options.expert_link, options.expert_latency, device),
      .shard_link = link_of("--shard", options.shard_link, options.shard_latency, device)};
  if (settings.automatic_sizes) return settings;
  settings.micro_batch_sizes.clear();
  for (const int size : cli::parse_counts(options.sizes, ',', "--micro-batch-sizes"))
    settings.micro_batch_sizes.push_back(size);
  return settings;
}

/// `--context 8192` is `:sequence=8192`, which config.json files and families of language models take.
std::string with_context_length(const EstimateOptions& options) {
  if (options.context == 0) return options.model;
  const std::size_t colon = options.model.rfind(':');
  const bool has_arguments = colon != std::string::npos && options.model.find('=', colon) != std::string::npos;
  if (has_arguments && options.model.find("sequence=", colon) != std::string::npos)
    throw Error(ErrorKind::usage, "--context " + std::to_string(options.context) + ": " + options.model +
                                      " says its sequence already; leave one of the two out");
  return options.model + (has_arguments ? ',' : ':') + "sequence=" + std::to_string(options.context);
}

void estimate(const EstimateOptions& options, const cli::Shell& shell) {
  const profile::DeviceSpec device =
      cli::load(cli::shipped_document(options.device, "devices", "--device-spec"), profile::parse_device_spec);
  const profile::EstimateOptions settings = settings_of(options, device);
  const ModelGraph model = load_model(with_context_length(options));
  cli::Output output(options.output);
  Profile profile = profile::estimate_profile(model, device, settings);
  profile.context["command"] = shell.command_line;
  write_profile(profile, output, shell);
}

void take_type(EstimateOptions& options, const std::string& text) { options.dtype = typed_type(text); }

constexpr auto kRateHelp = "bandwidth between these members: 300GB/s; default what the device's file says";
constexpr auto kLatencyHelp = "of a message between them: 10us; default what the device's file says";
using Wanted = EstimateOptions;
constexpr auto kEstimate = options(
    option<&Wanted::model>("model", kModelHelp, {.value = "MODEL", .required = true}),
    option<&Wanted::device>("--device-spec",
                            "what is known of the device: h100, or a file with the keys that "
                            "libprofile/estimate lists",
                            {.value = "FILE", .required = true}),
    option<&Wanted::trainer>("--trainer",
                             "whose steps are estimated: pp-run, megatron, nemo, torchtitan, fsdp, or a file",
                             {.value = "FILE", .standard = "pp-run; on a CPU what the device's file says"}),
    option<&Wanted::output>("-o,--output", "write the profile; - for stdout", {.value = "FILE"}),
    option<&Wanted::sizes>(
        "--micro-batch-sizes",
        "samples per micro-batch (of each such group), rising; auto: 1, 2, 4, ... as long as "
        "every layer fits the device",
        {.value = "LIST"}),
    parsed<take_type>(
        "--dtype",
        "floating type of weights and activations, of float8, mxfloat8 and float4 of the products "
        "of blocks, all else in bfloat16",
        {.value = "NAME",
         .standard = "the torch_dtype of a config.json, bfloat16 for its float16; else float32",
         .values = run_type_names}),
    option<&Wanted::context>("--context",
                             "tokens of a sample, as `:sequence=8192` behind a config.json or a language model",
                             {.least = 1}),
    option<&Wanted::tensor>("--tensor",
                            "devices that share every layer by splitting its tensors; times are then of the "
                            "group, bytes of one member",
                            {.group = "Groups", .least = 1}),
    option<&Wanted::whole_positions>("--no-sequence-parallel",
                                     "each member keeps and computes norms, dropout and sums of all positions"),
    option<&Wanted::context_parallel>(
        "--context-parallel",
        "such groups that have a part of every sample's positions each, neighbours of each other",
        {.least = 1}),
    option<&Wanted::expert_parallel>("--expert-parallel",
                                     "devices that have a part of every mixture's experts each: several of "
                                     "these groups, with samples of their own, or a part of one",
                                     {.least = 1}),
    option<&Wanted::expert_nodes>(
        "--expert-nodes", "nodes that these are in: --expert-link is between them, --tensor-link within",
        {.least = 1}),
    option<&Wanted::imbalance>("--expert-imbalance",
                               "most tokens that the experts of a device get, relative to the mean",
                               {.value = "FACTOR", .least = 1, .most = 1000, .standard = "the trainer's"}),
    option<&Wanted::shard_degree>(
        "--shard-degree",
        "such groups, with samples of their own, that hold a part of every layer each "
        "and gather the others' (FSDP)",
        {.least = 1}),
    option<&Wanted::shard>(
        "--shard", "what they divide: weights, gradients and the optimizer's state, or all but the weights"),
    option<&Wanted::tensor_link>("--tensor-link", kRateHelp, {.value = "RATE"}),
    option<&Wanted::tensor_latency>("--tensor-latency", kLatencyHelp, {.value = "TIME"}),
    option<&Wanted::context_link>("--context-link", kRateHelp, {.value = "RATE"}),
    option<&Wanted::context_latency>("--context-latency", kLatencyHelp, {.value = "TIME"}),
    option<&Wanted::expert_link>("--expert-link", kRateHelp, {.value = "RATE"}),
    option<&Wanted::expert_latency>("--expert-latency", kLatencyHelp, {.value = "TIME"}),
    option<&Wanted::shard_link>("--shard-link", kRateHelp, {.value = "RATE"}),
    option<&Wanted::shard_latency>("--shard-latency", kLatencyHelp, {.value = "TIME"}));

}  // namespace

void add_estimate(const cli::Command& app, cli::Shell& shell) {
  cli::add_command(
      app, shell, "estimate", "a profile from FLOPs and bytes, for a device that is not at hand", kEstimate,
      estimate,
      {"pp-profile estimate vgg16 --device-spec configs/devices/a100.json -o profile.json",
       "pp-profile estimate gpt2:layers=96,width=12288,heads=96,sequence=2048,tied=0 "
       "--device-spec configs/devices/h100.json --dtype bfloat16 --micro-batch-sizes 1,2 -o gpt3.json",
       "pp-profile estimate gpt2_xl:heads=20,dropout=0 --device-spec configs/devices/a100.json --dtype "
       "bfloat16 "
       "--tensor 4 --tensor-link 230GB/s -o gpt2-4.json",
       "pp-profile estimate config.json --context 8192 --dtype float8 --tensor 4 --context-parallel 2 "
       "--device-spec "
       "configs/devices/h100.json --trainer nemo -o profile.json",
       "pp-profile estimate config.json:sequence=8192 --device-spec configs/devices/h100.json --dtype bfloat16 "
       "-o profile.json"},
      [](const cli::Command& command, EstimateOptions& options) {
        command.add_flag(
            "--checkpoint{blocks}", options.checkpoint,
            "every block of layers, such as block3, runs its forward again in its backward and keeps its "
            "inputs alone; --checkpoint=attention: attention alone, and its scores are not kept");
      });
}

}  // namespace pp::profile_tool
