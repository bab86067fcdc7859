#include "apps/plan/planning_cases.h"

#include <algorithm>
#include <set>
#include <utility>

#include "apps/cli/output.h"
#include "apps/cli/progress.h"
#include "apps/cli/table.h"
#include "libplan/price/corrected.h"
#include "libprofile/core/cluster.h"
#include "libprofile/core/text.h"

namespace pp::plan_tool {

namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::usage, message); }

std::string cores_text(const PlanningCase& one) { return counted(one.profile.device.cores_per_device, "core"); }

/// What its trainer recomputes, as its estimate says.
std::string checkpoint_of(const Profile& profile) {
  const auto said = profile.context.find("checkpoint");
  return said == profile.context.end() ? "" : said->second;
}

std::string both_of(const PlanningCase& a, const PlanningCase& b) {
  return cli::input_name(a.file) + " and " + cli::input_name(b.file);
}

bool same_degrees(const Profile& a, const Profile& b) {
  return a.tensor_degree == b.tensor_degree && a.context_parallel.degree == b.context_parallel.degree &&
         a.expert_parallel.degree == b.expert_parallel.degree && a.shard_group == b.shard_group;
}

/// Profiles of one model in one type.
void check_same_model(const PlanningCase& a, const PlanningCase& b) {
  const std::string both = both_of(a, b);
  if (a.profile.model_hash != b.profile.model_hash) {
    refuse(
        both + " profile different models (\"" + a.profile.model.name + "\", \"" + b.profile.model.name +
        "\"); plan each alone: profiles that compete are of one model and one sequence length, on devices of "
        "other sizes, in other groups, or with --checkpoint");
  }
  if (a.profile.dtype != b.profile.dtype) {
    refuse(both + " profile different types (" + std::string(name_of(a.profile.dtype)) + ", " +
           std::string(name_of(b.profile.dtype)) + "); profile both with the same --dtype");
  }
  if (a.profile.memory_format != b.profile.memory_format) {
    refuse(both + " profile different memory formats (" + std::string(name_of(a.profile.memory_format)) + ", " +
           std::string(name_of(b.profile.memory_format)) + "); profile both with the same --memory-format");
  }
  if (a.profile.autocast != b.profile.autocast)
    refuse(both + " were not both profiled under the same autocast; profile both with the same --autocast");
  if (a.profile.products != b.profile.products)
    refuse(both + " profile products of different types; estimate both with the same --dtype");
}

/// Two profiles may compete: by their devices, or by what is recomputed, alone.
void check_pair(const PlanningCase& a, const PlanningCase& b) {
  check_same_model(a, b);
  const std::string both = both_of(a, b);
  const bool other_degree = !same_degrees(a.profile, b.profile);
  const bool recomputed = checkpoint_of(a.profile) != checkpoint_of(b.profile);
  if ((other_degree || recomputed) && a.profile.device.cores_per_device == b.profile.device.cores_per_device)
    return;
  if (other_degree) {
    refuse(both +
           " differ in their groups' degrees and in cores per device; give profiles that differ in one of "
           "them");
  }
  if (a.profile.device.kind != b.profile.device.kind) {
    refuse(both + " profile the model on " + std::string(name_of(a.profile.device.kind)) + " and " +
           std::string(name_of(b.profile.device.kind)) + " devices; give one alone");
  }
  const bool cpu = a.profile.device.kind == DeviceKind::cpu;
  if (!cpu || a.profile.device.cores_per_device == b.profile.device.cores_per_device) {
    refuse(both + " both profile the model on " +
           (cpu ? "devices of " + cores_text(a) : std::string(name_of(a.profile.device.kind)) + " devices") +
           ", with the same groups and recomputation; profiles that compete differ in one of these: give one "
           "alone");
  }
}

/// The machine of one profile may have devices with times of the other.
void check_kind(const PlanningCase& a, const PlanningCase& b) {
  check_same_model(a, b);
  const std::string both = both_of(a, b);
  if (a.profile.micro_batch_sizes != b.profile.micro_batch_sizes)
    refuse(both + " have other micro-batch sizes; profile both with the same --micro-batch-sizes");
  if (!same_degrees(a.profile, b.profile)) refuse(both + " are of other groups; profile both with the same");
  if (checkpoint_of(a.profile) != checkpoint_of(b.profile))
    refuse(both + " assume other checkpoints; estimate both with the same --checkpoint");
}

/// Devices whose model has all words of the name.
void set_kind(Cluster& cluster, const std::string& name, int kind) {
  std::set<std::string> models;
  bool any = false;
  for (Device& device : cluster.devices) {
    models.insert(device.model.empty() ? "no model" : device.model);
    if (device.model.empty() || !names_model(device.model, name)) continue;
    if (device.profile != 0)
      refuse("--profile-of " + name + ": device " + std::to_string(number(device.id)) + ", " + device.model +
             ", has a profile already; name it once");
    device.profile = kind;
    any = true;
  }
  if (any) return;
  std::string list;
  for (const std::string& model : models) list += (list.empty() ? "" : ", ") + model;
  throw Error(ErrorKind::usage, "--profile-of " + name +
                                    ": no device of the cluster has that model, they have " + list +
                                    "; give words of one, or write \"model\" into the cluster's file");
}

/// Reads --profile-of, and gives its devices their kinds.
void take_kinds(PlanningCase& one, Cluster& machine, const std::vector<std::string>& entries) {
  one.profile.others.clear();
  for (const std::string& entry : entries) {
    const std::size_t sign = entry.find('=');
    if (sign == 0 || sign == std::string::npos || sign + 1 == entry.size())
      refuse("--profile-of " + entry + ": give NAME=FILE, such as h100=h100.json");
    const std::string file = entry.substr(sign + 1);
    const PlanningCase other{file, cli::load(file, parse_profile), {}, {}, {}, {}};
    check_kind(one, other);
    one.profile.others.push_back(other.profile);
    set_kind(machine, entry.substr(0, sign), static_cast<int>(one.profile.others.size()));
  }
}

/// Devices that compute every layer together have one kind.
void check_groups(const Cluster& machine, const Cluster& grouped) {
  const std::size_t degree = machine.devices.size() / grouped.devices.size();
  for (std::size_t d = 0; d < machine.devices.size(); ++d) {
    if (machine.devices[d].profile == grouped.devices[d / degree].profile) continue;
    refuse("--profile-of: device " + std::to_string(d) +
           " is in one group with another kind of device; order " + "the cluster's devices so that groups of " +
           std::to_string(degree) + " are of one kind");
  }
}

/// `several`: profiles of other numbers of cores may compete; of one the machine is in its devices already.
Cluster machine_of(const Cluster& base, const Profile& profile, int cores, bool several) {
  const Cluster devices = several ? with_devices_of(base, profile.device, cores) : base;
  const Bytes bucket = profile.trainer ? profile.trainer->bucket : Bytes(0);
  return with_buckets(with_groups(devices, group_size(profile)), bucket);
}

/// The profile that the plan of the run was made from; of one profile that one, whatever the plan says.
PlanningCase& case_of(const plan::MeasuredRun& run, std::vector<PlanningCase>& cases) {
  if (cases.size() == 1) return cases.front();
  const auto found = std::ranges::find(cases, run.plan.profile_hash, &PlanningCase::hash);
  if (found != cases.end()) return *found;
  throw Error(ErrorKind::data, "/plan/profile_hash: none of the profiles is " + run.plan.profile_hash +
                                   ", from which the plan was made; give that profile");
}

void warn_of_barely_used(const plan::RunFactors& run, const std::string& file) {
  const std::vector<const plan::PlacedFactors*> barely = plan::barely_used(run);
  if (barely.empty()) return;
  std::string names;
  for (const plan::PlacedFactors* place : barely)
    names += (names.empty() ? "" : ", ") + std::to_string(number(place->device.id));
  cli::warn(cli::input_name(file) + " says nothing of the speed of " +
            (barely.size() == 1 ? "device " : "devices ") + names + ", which did less than " +
            cli::percent(plan::kComparable) +
            " of the work of the busiest: what was off counts as the layers'");
}

}  // namespace

void calibrate(std::vector<PlanningCase>& cases, const std::vector<std::string>& reports) {
  for (const std::string& file : reports) {
    const plan::MeasuredRun run = cli::load(file, plan::parse_measured_run);
    with_context(cli::input_name(file), [&] {
      PlanningCase& one = case_of(run, cases);
      one.runs.push_back(plan::factors_of(run, one.profile));
      warn_of_barely_used(one.runs.back(), file);
    });
  }
  for (PlanningCase& one : cases) {
    if (one.runs.empty()) continue;
    if (!one.profile.others.empty()) refuse("--calibrate corrects one profile; leave it out, or --profile-of");
    one.calibration = plan::calibration_of(one.profile, one.runs);
    one.profile = plan::corrected(one.profile, *one.calibration);
    one.cluster = plan::corrected(one.cluster, *one.calibration);
  }
}

std::vector<PlanningCase> load_profiles(const std::vector<std::string>& files) {
  std::vector<PlanningCase> cases;
  for (const std::string& file : files) {
    PlanningCase& one = cases.emplace_back(PlanningCase{file, cli::load(file, parse_profile), {}, {}, {}, {}});
    one.hash = profile_hash(one.profile);
  }
  for (std::size_t i = 1; i < cases.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) check_pair(cases[j], cases[i]);
  }
  return cases;
}

void place(std::vector<PlanningCase>& cases, const ClusterOptions& options) {
  const auto smallest = std::ranges::min_element(
      cases, {}, [](const PlanningCase& one) { return one.profile.device.cores_per_device; });
  Cluster base = load_machine(options, smallest->profile);
  if (!options.profile_of.empty() && cases.size() > 1)
    refuse("--profile-of: " + both_of(cases[0], cases[1]) + " compete; give one of them alone");
  take_kinds(cases.front(), base, options.profile_of);
  const int cores = smallest->profile.device.cores_per_device;
  for (PlanningCase& one : cases) {
    one.cluster = with_context(cli::input_name(one.file),
                               [&] { return machine_of(base, one.profile, cores, cases.size() > 1); });
    if (!options.profile_of.empty()) check_groups(base, one.cluster);
  }
}

SearchClock::SearchClock(std::string what, Seconds limit, const cli::Shell& shell)
    : phase_(std::move(what) + " takes more than 2 s; --time-limit ends it after " + to_text(limit)),
      limit_(limit),
      line_(shell) {}

std::function<bool(const plan::SearchProgress&)> SearchClock::observer() {
  return [this](const plan::SearchProgress& progress) { return look(progress); };
}

bool SearchClock::look(const plan::SearchProgress& progress) {
  constexpr Seconds kSilent{2}, kBetween{0.1};
  const Seconds elapsed = this->elapsed();
  if (elapsed >= limit_) return false;
  if (elapsed < kSilent || elapsed - shown_ < kBetween) return true;
  shown_ = elapsed;
  std::string detail = to_text(elapsed) + ", on " + std::to_string(progress.devices) + " devices";
  if (progress.best) detail += ", best step so far " + to_text(*progress.best);
  line_.update(phase_, elapsed / limit_, detail);
  return true;
}

}  // namespace pp::plan_tool
