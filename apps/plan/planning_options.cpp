// The options of a planning request and its machine, a row each, and what they say together.
#include "apps/plan/planning_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <thread>
#include <tuple>

#include "apps/cli/arguments.h"
#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/cli/progress.h"
#include "libplan/interop/megatron_arguments.h"
#include "libplan/request/request.h"
#include "libplan/request/shapes.h"
#include "libplan/schedule/program_text.h"
#include "libprofile/core/blocks.h"
#include "libprofile/core/cluster.h"
#include "libprofile/core/index.h"
#include "libprofile/core/text.h"

namespace pp::plan_tool {

namespace {

constexpr auto kMachineSize = options(
    option<&ClusterOptions::devices>("--devices", "so many equal devices of the profile's kind",
                                     {.group = "Machine", .least = 1}),
    option<&ClusterOptions::nodes>("--nodes", "so many copies of the first node of --cluster or --levels",
                                   {.least = 1, .not_with = "--devices"}));

constexpr auto kMachine = options(
    option<&ClusterOptions::file>("--cluster",
                                  "a cluster.json, as pp-profile links writes it, or a shipped one: dgx-h100",
                                  {.group = "Machine", .value = "FILE", .not_with = "--devices"}),
    option<&ClusterOptions::bandwidth>("--bandwidth", "of every link, with --devices: 10GB/s",
                                       {.not_with = "--cluster"}),
    option<&ClusterOptions::latency>("--latency", "of every link, with --devices or --levels: 5us",
                                     {.not_with = "--cluster"}),
    option<&ClusterOptions::levels>(
        "--levels",
        "nested groups of devices, innermost first: 8@300GB/s,2@4x25GB/s is two nodes of eight, with four "
        "network cards of 25 GB/s each",
        {.value = "N@RATE,..", .not_with = "--cluster"}),
    option<&ClusterOptions::memory>("--memory",
                                    "of each device, of which plans use 95 %, with --devices or --levels: "
                                    "80GiB; default the profiled device's",
                                    {.not_with = "--cluster"}),
    option<&ClusterOptions::profile_of>(
        "--profile-of",
        "devices whose \"model\" in the cluster's file has this name take their times from this profile of "
        "the same model: h100=h100.json,l40s=l40s.json; all others from PROFILE",
        {.value = "NAME=FILE,..", .separator = ','}));

}  // namespace

void add_cluster_options(const cli::Command& command, ClusterOptions& options) {
  cli::add_options(command, kMachineSize, options);
  add_machine_options(command, options);
}

void add_machine_options(const cli::Command& command, ClusterOptions& options) {
  cli::add_options(command, kMachine, options);
}

namespace {

/// `4x25GB/s`, or the rate of one card.
LevelSpec parse_level(const std::string& count, const std::string& rate) {
  LevelSpec level{cli::parse_counts(count, ',', "--levels").front(), {}, 1};
  const std::size_t times = rate.find('x');
  const std::size_t begin = times == std::string::npos ? 0 : times + 1;
  if (begin > 0) level.cards = cli::parse_counts(rate.substr(0, times), ',', "--levels").front();
  level.bandwidth = parse_bandwidth(rate.substr(begin), "--levels");
  return level;
}

/// Cards join the innermost groups, and serve equally many devices each.
void check_cards(const std::vector<LevelSpec>& levels) {
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const int cards = levels[i].cards;
    if (cards == 1) continue;
    const std::string text = "--levels: " + std::to_string(cards) + " cards ";
    if (i != 1)
      throw Error(ErrorKind::usage, text + "stand at level " + std::to_string(i + 1) + "; they join " +
                                        "the innermost groups: write them at the second");
    if (levels.front().count % cards != 0) {
      throw Error(ErrorKind::usage, text + "do not serve equally many of " +
                                        std::to_string(levels.front().count) +
                                        " devices; give a divisor of that number");
    }
  }
}

}  // namespace

std::vector<LevelSpec> parse_levels(const std::string& text) {
  std::vector<LevelSpec> levels;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const std::size_t at = part.find('@');
    if (at == std::string::npos) {
      throw Error(ErrorKind::usage,
                  "--levels: \"" + part + "\" is not devices@bandwidth; write for example 8@10GB/s,2@1GB/s");
    }
    levels.push_back(parse_level(part.substr(0, at), part.substr(at + 1)));
    begin = end + 1;
  }
  check_cards(levels);
  return levels;
}

void say_of_cards(const ClusterOptions& options) {
  if (options.levels.empty()) return;
  const std::vector<LevelSpec> levels = parse_levels(options.levels);
  if (levels.size() < 2 || levels.front().count == 1 || levels[1].cards > 1) return;
  const std::string count = std::to_string(levels.front().count);
  const std::string rate = options.levels.substr(options.levels.find('@', options.levels.find(',')) + 1);
  cli::inform("the " + count + " devices of a node share one network card; with one each write " +
              std::to_string(levels[1].count) + "@" + count + "x" + rate.substr(0, rate.find(',')));
}

namespace {

/// The machine as it is given.
Cluster given_cluster(const ClusterOptions& options, const Profile& profile) {
  if (!options.file.empty()) {
    Cluster cluster = cli::load(cli::shipped_document(options.file, "clusters", "--cluster"), parse_cluster);
    if (options.nodes > 0)
      return with_context(cli::input_name(options.file), [&] { return with_nodes(cluster, options.nodes); });
    return cluster.measured ? cluster : without_single_groups(std::move(cluster));
  }
  const Bytes memory = options.memory.value > 0 ? options.memory : profile.device.memory;
  if (!options.levels.empty()) {
    if (options.devices > 0 || options.bandwidth.value > 0) {
      throw Error(ErrorKind::usage,
                  "--levels says how many devices there are and how fast their links; leave out --devices and "
                  "--bandwidth");
    }
    Cluster cluster =
        nested_cluster(parse_levels(options.levels), profile.device.kind, options.latency, memory);
    return options.nodes > 0 ? with_nodes(cluster, options.nodes) : cluster;
  }
  if (options.devices == 0) {
    throw Error(
        ErrorKind::usage,
        "no machine given; add --cluster FILE, --devices N --bandwidth RATE, or --levels N@RATE,N@RATE");
  }
  if (options.devices > 1 && options.bandwidth.value <= 0) {
    throw Error(ErrorKind::usage,
                "--devices " + std::to_string(options.devices) +
                    " needs --bandwidth, for example --bandwidth 10GB/s; pp-profile links measures it");
  }
  const BytesPerSecond bandwidth = options.bandwidth.value > 0 ? options.bandwidth : BytesPerSecond(1e9);
  return flat_cluster(options.devices, profile.device.kind, bandwidth, options.latency, memory);
}

/// `layer`, `block`, or a number of parts of a name.
std::optional<plan::PlanRequest::CutAt> parse_cut_at(const std::string& text) {
  if (text == "layer") return std::nullopt;
  if (text == "block") return plan::PlanRequest::CutAt{};
  const std::vector<int> depth = cli::parse_counts(text, ',', "--cut-at");
  if (depth.size() != 1)
    throw Error(ErrorKind::usage, "--cut-at " + text + ": give layer, block, or how many parts of a name");
  return plan::PlanRequest::CutAt{depth.front()};
}

}  // namespace

void check_memory_limit(const plan::PlanRequest& request, const Cluster& cluster) {
  for (const Device& device : cluster.devices) {
    if (!request.memory_limit || device.memory == Bytes(0) || *request.memory_limit <= device.memory) continue;
    throw Error(ErrorKind::usage,
                "--memory-limit " + to_text(*request.memory_limit) + " is more than device " +
                    std::to_string(index(device.id)) + " has, " + to_text(device.memory) +
                    "; give less, or say what the devices have with --memory or in the cluster's "
                    "file");
  }
}

Cluster load_machine(const ClusterOptions& options, const Profile& profile) {
  const Cluster given = given_cluster(options, profile);
  const int cores = profile.device.cores_per_device;
  if (profile.device.kind != DeviceKind::cpu || cores < 1) return given;
  const std::string machine = options.file.empty() ? "the machine" : cli::input_name(options.file);
  return with_context(machine, [&] { return with_devices_of(given, profile.device, cores); });
}

Cluster with_devices_of(const Cluster& cluster, const ProfiledDevice& device, int open_cores) {
  const auto size = [](const Device& one) { return static_cast<int>(one.cores.size()); };
  const int given = size(cluster.devices.front()), wanted = device.cores_per_device;
  for (const Device& one : cluster.devices) {
    if (one.kind != DeviceKind::cpu) return cluster;
    if (size(one) == given) continue;
    throw Error(ErrorKind::usage, "its devices have different numbers of cores, " + std::to_string(given) +
                                      " and " + std::to_string(size(one)) +
                                      "; a profile is of devices of one number: make them equal");
  }
  const int there = given > 0 ? given : open_cores;
  if (wanted % there != 0) {
    throw Error(ErrorKind::usage, "devices of " + counted(wanted, "core") +
                                      ", as profiled, are not made of devices of " + counted(there, "core") +
                                      ", as the machine has; profile such devices, or give smaller ones");
  }
  if (wanted == there && (given > 0 || wanted == 1)) return cluster;
  Cluster machine = with_wider_devices(cluster, wanted / there, there);
  for (Device& one : machine.devices) {  // devices of one host may each count all of its memory
    if (device.memory > Bytes(0)) one.memory = std::min(one.memory, device.memory);
  }
  return machine;
}

namespace {

/// `15T`
double parse_many(const std::string& text, const std::string& option) {
  static constexpr std::array<std::pair<std::string_view, double>, 5> kUnits{
      {{"", 1}, {"K", 1e3}, {"M", 1e6}, {"B", 1e9}, {"T", 1e12}}};
  double value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view typed(rest, text.data() + text.size());
  const auto unit = std::ranges::find(kUnits, typed, &std::pair<std::string_view, double>::first);
  if (error == std::errc() && unit != kUnits.end()) value *= unit->second;
  if (error == std::errc() && unit != kUnits.end() && std::isfinite(value) && value >= 1) return value;
  throw Error(ErrorKind::usage, option + ": \"" + text +
                                    "\" is not a number of at least 1; write for example 300B, 15T or 1.4e13");
}

using Budget = plan::TrainingBudget;
void take_tokens(Budget& budget, const std::string& text) { budget.tokens = parse_many(text, "--tokens"); }
void take_samples(Budget& budget, const std::string& text) { budget.samples = parse_many(text, "--samples"); }

constexpr auto kBudget = options(
    option<&Budget::price_per_hour>("--price-per-hour", "of one device, in any currency: what training costs",
                                    {.group = "Cost", .value = "PRICE", .least = 1e-9}),
    parsed<take_tokens>("--tokens", "to train on in all, 15T: how many days it takes", {.value = "N"}),
    parsed<take_samples>("--samples", "the same in samples", {.value = "N", .not_with = "--tokens"}));

}  // namespace

void add_budget_options(const cli::Command& command, plan::TrainingBudget& budget) {
  cli::add_options(command, kBudget, budget);
}

int default_threads() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

namespace {

using Request = plan::PlanRequest;
constexpr auto kMiniBatch = options(option<&Request::mini_batch>("--mini-batch", "samples per optimizer update",
                                                                 {.group = "Training", .least = 1}));

constexpr auto kBasic = options(
    option<&Request::optimizer>("--optimizer", "whose state counts as memory; with --for adamw",
                                {.group = "Training"}),
    option<&Request::precision>("--precision",
                                "types of weights, gradients and state: those of the profile, float32 under "
                                "autocast, or half weights with a float32 master, as trainers have it (--for)"),
    option<&Request::shard>("--shard",
                            "whether the replicas of a stage share the optimizer's state; auto: where that is "
                            "no slower, or nothing fits otherwise"),
    option<&Request::memory_limit>("--memory-limit",
                                   "usable bytes per device, all of them: 16GiB; default 95 % of its memory",
                                   {.group = "Search"}),
    option<&Request::context_bytes>(
        "--context-memory",
        "bytes of each device that are taken beside tensors, as pp-run check --warm measures them"),
    option<&Request::recompute>("--recompute",
                                "activation checkpointing, run forwards again to save memory: never, whole "
                                "stages, or what a stage without room needs"),
    option<&Request::extrapolate>("--extrapolate", "allow micro-batch sizes outside the profile",
                                  {.group = "Profile"}),
    option<&Request::linear_batch>("--linear-batch", "scale a profile of one micro-batch size linearly"),
    option<&Request::force_units>("--force-units", "accept times and rates that look like another unit"));

}  // namespace

void add_mini_batch(const cli::Command& command, plan::PlanRequest& request) {
  cli::add_options(command, kMiniBatch, request);
}

void add_basic_options(const cli::Command& command, RequestOptions& options) {
  cli::add_options(command, kBasic, options.request);
  options.optimizer = command.option("--optimizer");
  options.precision = command.option("--precision");
}

std::pair<plan::WindowRule, std::vector<int>> parse_window(const std::string& text) {
  if (text.find_first_of("0123456789") == std::string::npos)
    return {typed_name<plan::WindowRule>(text, "--window"), {}};
  return {plan::WindowRule::explicit_list, cli::parse_counts(text, ',', "--window")};
}

plan::Strategy parse_strategy(const std::string& name) {
  if (name.empty()) return plan::Strategy::automatic;
  return typed_name<plan::Strategy>(name, "--strategy");
}

namespace {

void take_cut_at(RequestOptions& options, const std::string& text) {
  options.request.cut_at = parse_cut_at(text);
}

/// The programs are the schedule, which is read before them.
void take_programs(RequestOptions& options, const std::string& path) {
  plan::PlanRequest& request = options.request;
  const std::string own(plan::schedule_of_files().name);
  if (request.schedule != plan::PlanRequest().schedule && request.schedule != own)
    throw Error(ErrorKind::usage,
                "--programs: the programs are the schedule; leave --schedule " + request.schedule + " out");
  request.programs = cli::load(path, plan::parse_csv);
  request.schedule = own;
}

using All = RequestOptions;
constexpr auto kShape = options(
    option<&All::request, &Request::allow_async>(
        "--allow-async,!--sync-only", "auto: schedules without a flush compete too (the default: not)",
        {.group = "Search"}),
    option<&All::request, &Request::weight_policy>("--weight-policy",
                                                   "which version of the weights a micro-batch runs on"),
    option<&All::request, &Request::chunks_per_worker>(
        "--chunks", "stages per worker, for the schedules with several; --stages counts workers there",
        {.least = 1}),
    option<&All::request, &Request::stages>("--stages", "exactly so many stages", {.least = 1}),
    option<&All::replicas>("--replicas", "per stage: 3-1; one number: of each", {.value = "R-R"}),
    option<&All::request, &Request::max_stages>("--max-stages", "at most so many stages", {.least = 1}),
    option<&All::cuts>("--cuts",
                       "boundaries: 3,5 starts stages at layers 0, 3 and 5; even: as many blocks in each stage",
                       {.value = "LIST"}),
    option<&All::layout>("--layout",
                         "stages as Megatron's --pipeline-model-parallel-layout says them: Et*3|(tt|)*29,L",
                         {.value = "STRING", .not_with = "--cuts"}),
    parsed<take_cut_at>("--cut-at",
                        "where stages may begin: at any layer, between numbered blocks of layers "
                        "(model.layers.3), or where the first N parts of the names differ",
                        {.value = "layer|block|N", .standard = "layer"}),
    option<&All::window>("--window",
                         "micro-batches in flight of 1F1B kinds: auto, win, published, wide, or K0,K1,.."),
    option<&All::request, &Request::placement>("--placement",
                                               "how stages go through the nodes of a cluster; auto tries all"),
    option<&All::request, &Request::all_reduce_overlap>("--all-reduce-overlap",
                                                        "share of the last backward that hides the all-reduce, "
                                                        "0 to 1; default the cluster's measured one, else "
                                                        "0",
                                                        {.value = "SHARE"}),
    option<&All::request, &Request::tied>(
        "--tied",
        "weights that layers share: all of them in one stage, or copies in several if that is faster "
        "(synchronous schedules); auto: copies where the model could not be cut without"),
    option<&All::request, &Request::swap_bandwidth>(
        "--swap-bandwidth",
        "between the host and each device, for schedules that keep weights on the host: 12GB/s",
        {.group = "Machine"}),
    option<&All::request, &Request::swap_overlap>(
        "--swap-overlap", "share of swapped weights that operations hide, 0 to 1; default 1 on GPUs, 0 on CPUs",
        {.value = "SHARE"}));

constexpr auto kRequest =
    options(option<&All::micro_batches>("--micro-batches", "per mini-batch, or auto", {.group = "Training"}),
            option<&All::request, &Request::micro_batch_size>(
                "--micro-batch-size", "samples per micro-batch, instead of their number",
                {.least = 1, .not_with = "--micro-batches"}),
            option<&All::request, &Request::schedule>(
                "--schedule", "auto, or names of `pp-plan schedules`: gpipe,1f1b takes the best of them",
                {.group = "Search"}),
            parsed<take_programs>("--programs", "a schedule written elsewhere, in PyTorch's exchange form",
                                  {.value = "FILE"}),
            option<&All::threads>("--threads", "that simulate plans; the answer does not depend on it",
                                  {.least = 1, .standard = "one per core"}),
            option<&All::time_limit>("--time-limit",
                                     "ends the search with the best plan so far, which then says so: 30s",
                                     {.standard = "10min"}),
            option<&All::request, &Request::top>("--top", "alternatives to list", {.least = 0}));

}  // namespace

void add_shape_options(const cli::Command& command, RequestOptions& options) {
  cli::add_options(command, kShape, options);
}

void add_request_options(const cli::Command& command, RequestOptions& options) {
  add_mini_batch(command, options.request);
  add_basic_options(command, options);
  cli::add_options(command, kRequest, options);
  add_shape_options(command, options);
}

namespace {

/// Where stages of equally many numbered blocks begin; what is in front of the first block is part of the
/// first stage, what is behind the last of the last. Where two blocks more would divide, the first stage and
/// the last have one less, in place of embedding and head; these can be stages by themselves.
std::vector<int> even_cuts(const Profile& profile, const plan::PlanRequest& request) {
  if (!request.stages) throw Error(ErrorKind::usage, "--cuts even: into how many stages? Add --stages");
  const std::size_t stages = at(*request.stages * std::max(1, request.chunks_per_worker));
  const plan::PlanGraph graph = plan::make_graph(profile);
  const std::vector<std::vector<int>> blocks = plan::numbered_blocks(graph);
  const std::size_t less = blocks.size() % stages == 0 ? 0 : 1, all = blocks.size() + 2 * less;
  const bool ends = !blocks.empty() && blocks.front().front() > 0 &&
                    blocks.back().back() + 1 < static_cast<int>(graph.layers.size());
  if (blocks.empty() || all % stages != 0 || (all / stages <= less && !ends)) {
    throw Error(ErrorKind::usage, "--cuts even: the model has " +
                                      counted(static_cast<std::int64_t>(blocks.size()), "block") + ", which " +
                                      std::to_string(stages) +
                                      " stages do not divide; give another --stages, or --cuts by layer");
  }
  std::vector<int> cuts;
  for (std::size_t stage = 1; stage < stages; ++stage) {
    const std::size_t block = stage * all / stages - less;
    cuts.push_back(block < blocks.size() ? blocks[block].front() : blocks.back().back() + 1);
  }
  return cuts;
}

}  // namespace

plan::PlanRequest to_request(const RequestOptions& options, const Profile& profile) {
  plan::PlanRequest request = options.request;
  request.threads = options.threads > 0 ? options.threads : default_threads();
  if (options.micro_batches != "auto") {
    const std::vector<int> counts = cli::parse_counts(options.micro_batches, ',', "--micro-batches");
    if (counts.size() > 1) {
      throw Error(ErrorKind::usage, "--micro-batches " + options.micro_batches +
                                        ": a plan has one number; give one, auto, or use pp-plan sweep");
    }
    request.micro_batches = counts.front();
  }
  if (options.cuts == "even") {
    request.cuts = even_cuts(profile, request);
  } else if (!options.cuts.empty()) {
    request.cuts = cli::parse_counts(options.cuts, ',', "--cuts");
  } else if (!options.layout.empty()) {
    request.cuts = plan::cuts_of_layout(plan::make_graph(profile), prediction_blocks(profile.model).size(),
                                        options.layout);
  }
  if (!options.replicas.empty()) {
    request.replicas = cli::parse_counts(options.replicas, '-', "--replicas");
    const int chunks =
        request.cuts.empty() ? 1 : std::max(request.chunks_per_worker, 1);  // cuts count them all
    if (request.replicas.size() == 1)
      request.replicas.resize(at(std::max(plan::requested_stages(request) / chunks, 1)), request.replicas[0]);
  }
  if (options.window != "auto") std::tie(request.window, request.windows) = parse_window(options.window);
  return request;
}

}  // namespace pp::plan_tool
