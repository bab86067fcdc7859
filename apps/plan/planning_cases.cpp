#include "apps/plan/planning_cases.h"

#include <algorithm>
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

/// Two profiles may compete: by their devices, or by what is recomputed, alone.
void check_pair(const PlanningCase& a, const PlanningCase& b) {
  const std::string both = cli::input_name(a.file) + " and " + cli::input_name(b.file);
  if (a.profile.model_hash != b.profile.model_hash) {
    refuse(both + " profile different models (\"" + a.profile.model.name + "\", \"" + b.profile.model.name +
           "\"); profile one model on devices of each size");
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
  const bool other_degree = a.profile.tensor_degree != b.profile.tensor_degree ||
                            a.profile.context_parallel.degree != b.profile.context_parallel.degree ||
                            a.profile.expert_parallel.degree != b.profile.expert_parallel.degree;
  const bool recomputed = checkpoint_of(a.profile) != checkpoint_of(b.profile);
  if ((other_degree || recomputed) && a.profile.device.cores_per_device == b.profile.device.cores_per_device)
    return;
  if (other_degree) {
    refuse(both +
           " differ in tensor, context or expert degree and in cores per device; give profiles that differ in "
           "one of "
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
           ", with the same tensor, context and expert degree and recomputation; profiles that compete differ "
           "in one "
           "of these: "
           "give one alone");
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
  const Cluster base = load_machine(options, smallest->profile);
  const int cores = smallest->profile.device.cores_per_device;
  for (PlanningCase& one : cases) {
    one.cluster = with_context(cli::input_name(one.file),
                               [&] { return machine_of(base, one.profile, cores, cases.size() > 1); });
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
