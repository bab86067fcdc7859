#include "apps/run/keep_going/next_plan.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "apps/run/keep_going/fleet.h"
#include "apps/run/launch_command.h"
#include "libplan/answer/make_plan.h"
#include "libplan/price/predict.h"
#include "libplan/request/machine.h"
#include "libprofile/core/error.h"
#include "libprofile/core/file.h"
#include "libprofile/core/text.h"

namespace pp::run_tool {

namespace {

namespace fs = std::filesystem;
constexpr auto kStep = "step", kFailedMark = "failed", kEnded = "ended", kLost = "lost.json",
               kSpeedsFile = "speeds.json";
constexpr std::size_t kWidth = 20;  // of a step, so that it is replaced in one write

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// Adds a line to the file, which is there from then on.
void mark(const fs::path& path, const std::string& text) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return;
  const std::string line = text + '\n';
  [[maybe_unused]] const ssize_t written = write(file, line.data(), line.size());
  close(file);
}

std::string step_text(std::int64_t step) {
  std::string text = std::to_string(step);
  text.resize(kWidth, ' ');
  return text;
}

constexpr Seconds kMostPlanning(60);

plan::Infeasible because(const std::string& reason) {
  plan::Infeasible none;
  none.reason = reason;
  return none;
}

std::function<bool(const plan::SearchProgress&)> until(Seconds limit) {
  const auto begin = std::chrono::steady_clock::now();
  return [=](const plan::SearchProgress&) { return std::chrono::steady_clock::now() - begin < limit; };
}

}  // namespace

LaunchState::LaunchState(fs::path folder) : folder_(std::move(folder)) {
  std::error_code failure;
  fs::create_directories(folder_, failure);
  if (failure) throw Error(ErrorKind::usage, folder_.string() + ": cannot be made: " + failure.message());
}

void LaunchState::begin(std::int64_t first_step, const std::vector<run::LostAttempt>& earlier) const {
  std::error_code ignored;
  for (const char* const name : {kFailedMark, kEnded, kSpeedsFile}) fs::remove(folder_ / name, ignored);
  Json rows = Json::array();
  for (const run::LostAttempt& one : earlier) rows.push_back(run::to_json(one));
  write_file(folder_ / kLost, dump_json(Json{{"lost_attempts", std::move(rows)}}));
  write_file(folder_ / kStep, step_text(first_step));
}

std::int64_t LaunchState::step() const {
  std::int64_t step = 0;
  std::ifstream(folder_ / kStep) >> step;
  return step;
}

bool LaunchState::failed() const { return is_there(folder_ / kFailedMark); }

std::string LaunchState::reason() const {
  std::string reason;
  std::ifstream file(folder_ / kFailedMark);
  std::getline(file, reason);
  return reason;
}

bool LaunchState::ended() const { return is_there(folder_ / kEnded); }

std::optional<ToldSpeeds> LaunchState::speeds() const {
  const fs::path file = folder_ / kSpeedsFile;
  if (!is_there(file)) return std::nullopt;
  try {
    const Json json = parse_json(read_file(file));
    ObjectReader reader(json, "");
    return ToldSpeeds{reader.numbers("factors", {.min = 1e-9, .max = 1e9}), reader.integer("steps")};
  } catch (const Error&) {
    return std::nullopt;
  }
}

LaunchedRank::LaunchedRank(fs::path folder)
    : folder_(std::move(folder)), step_(open((folder_ / kStep).c_str(), O_WRONLY | O_CLOEXEC)) {}

LaunchedRank::~LaunchedRank() {
  if (step_ >= 0) close(step_);
}

void LaunchedRank::step(std::int64_t step) const {
  const std::string text = step_text(step);
  if (step_ >= 0) [[maybe_unused]]
    const ssize_t written = pwrite(step_, text.data(), text.size(), 0);
}

void LaunchedRank::failed(const std::string& reason) const { mark(folder_ / kFailedMark, reason); }
void LaunchedRank::ended() const { mark(folder_ / kEnded, "ended"); }

void LaunchedRank::speeds(const ToldSpeeds& speeds) const {
  const fs::path whole = folder_ / kSpeedsFile, part = folder_ / (std::string(kSpeedsFile) + ".part");
  std::error_code ignored;
  try {
    write_file(part, dump_json(Json{{"factors", speeds.factors}, {"steps", speeds.steps}}));
    fs::rename(part, whole, ignored);
  } catch (const Error&) {
  }
}

std::vector<run::LostAttempt> LaunchedRank::earlier() const {
  std::vector<run::LostAttempt> lost;
  const fs::path file = folder_ / kLost;
  with_context(file.string(), [&] {
    const Json json = parse_json(read_file(file));
    ObjectReader reader(json, "");
    reader.objects("lost_attempts", [&](ObjectReader& row) { lost.push_back(run::read_lost_attempt(row)); });
    reader.finish();
  });
  return lost;
}

int ranks_on(const plan::Plan& plan, const std::vector<Host>& hosts) {
  return static_cast<int>(place_ranks(plan, hosts).size());
}

PlacedPlan placed(plan::Plan plan, const std::string& file, const std::vector<Host>& hosts) {
  const int ranks = ranks_on(plan, hosts);
  return {std::move(plan), file, ranks};
}

bool fits(const PlacedPlan& plan, const std::vector<Host>& hosts) {
  try {
    return ranks_on(plan.plan, hosts) == plan.ranks;
  } catch (const Error&) {
    return false;
  }
}

std::variant<PlacedPlan, plan::Infeasible> next_plan(const Replanning& job, const PlacedPlan& current,
                                                     const std::vector<Host>& hosts, int gone) {
  const bool first_fits = job.speeds.empty() && fits(job.first, hosts);
  if (gone == 0 && !first_fits && fits(current, hosts)) return current;
  return larger_plan(job, hosts, gone);
}

std::variant<PlacedPlan, plan::Infeasible> larger_plan(const Replanning& job, const std::vector<Host>& hosts,
                                                       int gone) {
  if (gone == 0 && job.speeds.empty() && fits(job.first, hosts)) return job.first;
  if (!job.profile)
    return because(
        "the plan does not fit what is left, and without the profile that it was made from there is no "
        "other; give it with --profile FILE");
  const std::vector<int> positions = devices_left(job.first.plan, hosts, job.spare, gone);
  if (positions.empty()) return because("no device is left");
  auto found = plan_for(job, positions);
  if (auto* const none = std::get_if<plan::Infeasible>(&found)) return *none;
  PlacedPlan next = placed(std::get<plan::Plan>(std::move(found)), "", hosts);
  next.devices = positions;
  return next;
}

std::variant<plan::Plan, plan::Infeasible> plan_for(const Replanning& job, const std::vector<int>& positions) {
  const plan::Plan& first = job.first.plan;
  Cluster machine = plan::cluster_of(first);
  for (std::size_t d = 0; d < job.speeds.size(); ++d) machine.devices[d].speed = job.speeds[d];
  plan::PlanRequest request = plan::request_of(first);
  request.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  request.observer = until(kMostPlanning);
  return plan::plan_again(first, *job.profile, plan::some_devices(machine, positions), request);
}

std::string plan_line(const plan::Plan& plan) {
  return plan.schedule.name + ", layers per stage " + plan::stages_text(plan) + ", replicas " +
         plan::replicas_text(plan) + ", " + counted(plan.training.mini_batch, "sample") + " in " +
         counted(plan.training.micro_batches, "micro-batch");
}

std::string promise_line(const plan::Plan& plan, const plan::Plan& old, Seconds before) {
  Bytes peak;
  for (const plan::WorkerPrediction& worker : plan.predicted.workers) peak = std::max(peak, worker.memory.peak);
  std::string text = "it promises " + pp::to_text(plan.predicted.step) + " per step";
  if (before > Seconds()) text += " in place of " + pp::to_text(before);
  text += " and at most " + pp::to_text(peak) + " on a device; ";
  const auto alone = [](const plan::Stage& stage) { return stage.workers.size() == 1; };
  const bool in_order = plan.schedule == old.schedule && std::ranges::all_of(plan.stages, alone) &&
                        std::ranges::all_of(old.stages, alone);
  if (plan.training.micro_batches != old.training.micro_batches || !in_order)
    return text + "the weights are equal to rounding";
  return text + "as many micro-batches as before, so the weights keep their bits";
}

}  // namespace pp::run_tool
