#include "apps/run/keep_going/rebalance.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "libplan/answer/make_plan.h"
#include "libplan/price/corrected.h"
#include "libplan/price/predict.h"
#include "libplan/report/calibration.h"
#include "libprofile/core/index.h"

namespace pp::run_tool {

namespace {

constexpr double kWorthOfGain = 0.95;  // of the step time: promises are not surer

bool is_off(double factor) { return std::max(factor, 1 / factor) > plan::kSameSpeed; }

/// `device cpu:1 takes 2.01 times as long as planned`, of each that does.
std::string measured_line(const plan::Plan& plan, const std::vector<double>& factors) {
  std::string text;
  for (const plan::Worker& worker : plan.workers) {
    const double factor = factors[index(worker.id)];
    if (!is_off(factor)) continue;
    const Device& device = plan::device_of(plan, worker.id);
    std::array<char, 32> number{};
    std::snprintf(number.data(), number.size(), "%.3g", factor);
    text += (text.empty() ? "device " : ", device ") + pp::to_text(device);
    if (!device.node.empty()) text += " on " + device.node;
    text += std::string(" takes ") + number.data() + " times as long as planned";
  }
  return text;
}

/// What `current` promises where the first plan's devices have these speeds.
Seconds step_at(const Replanning& job, const PlacedPlan& current, const std::vector<int>& positions,
                const std::vector<double>& speeds) {
  plan::Plan plan = current.plan;
  for (std::size_t d = 0; d < plan.devices.size(); ++d) plan.devices[d].speed = speeds[at(positions[d])];
  const auto& calibration = job.first.plan.calibration;
  const Profile times = calibration ? plan::corrected(*job.profile, *calibration) : *job.profile;
  return plan::predict(plan, times, plan::cluster_of(plan), plan::request_of(job.first.plan)).step;
}

}  // namespace

std::optional<BalancedPlan> balanced_plan(const Replanning& job, const PlacedPlan& current,
                                          const std::vector<double>& factors) {
  const std::vector<Device>& all = job.first.plan.devices;
  std::vector<int> positions = current.devices;
  for (int d = 0; current.devices.empty() && d < std::ssize(all); ++d) positions.push_back(d);
  Replanning measured = job;
  if (measured.speeds.empty())
    for (const Device& device : all) measured.speeds.push_back(device.speed);
  for (std::size_t d = 0; d < positions.size(); ++d)
    measured.speeds[at(positions[d])] = current.plan.devices[d].speed;
  bool changed = false;
  for (const plan::Worker& worker : current.plan.workers) {
    const double factor = factors[index(worker.id)];
    if (!is_off(factor)) continue;
    const auto device = std::ranges::find(current.plan.devices, worker.device, &Device::id);
    const std::ptrdiff_t place = device - current.plan.devices.begin();
    measured.speeds[at(positions[at(place)])] = device->speed / factor;
    changed = true;
  }
  if (!changed) return std::nullopt;
  auto found = plan_for(measured, positions);
  auto* const plan = std::get_if<plan::Plan>(&found);
  if (!plan) return std::nullopt;
  const Seconds before = step_at(job, current, positions, measured.speeds);
  return BalancedPlan{std::move(*plan), std::move(measured.speeds), before};
}

Seconds saved_time(Seconds before, Seconds after, Seconds within, std::int64_t steps) {
  const Seconds left = std::min(within, static_cast<double>(steps) * before);
  return left * (1 - after / before);
}

void Rebalancer::begin() {
  begin_ = Clock::now();
  answered_.clear();
}

void Rebalancer::trains() { restart_ = Clock::now() - begin_; }

std::optional<Rebalancer::Decision> Rebalancer::look(const std::optional<ToldSpeeds>& told, std::int64_t step,
                                                     const PlacedPlan& current) {
  if (!told || !restart_ || told->factors == answered_) return std::nullopt;
  if (told->factors.size() != current.plan.workers.size()) return std::nullopt;
  if (changed_ && Clock::now() - *changed_ < within_) return std::nullopt;
  answered_ = told->factors;
  std::string measured = measured_line(current.plan, told->factors);
  if (measured.empty()) return std::nullopt;
  std::optional<BalancedPlan> next;
  try {
    next = balanced_plan(job_, current, told->factors);
  } catch (const Error& error) {
    return Decision{measured + "; the plan stays: " + error.what()};
  }
  if (!next) return Decision{measured + "; the plan stays, as there is no other"};
  const Seconds after = next->plan.predicted.step;
  const Seconds saved = saved_time(next->before, after, within_, told->steps - step);
  const std::string gain = pp::to_text(after) + " per step in place of " + pp::to_text(next->before);
  if (after > kWorthOfGain * next->before || saved < *restart_) {
    return Decision{measured + "; the plan stays, as the best one promises " + gain +
                    ", which does not repay a restart of " + pp::to_text(*restart_)};
  }
  changed_ = Clock::now();
  Decision decision{measured + "; the training stops with a checkpoint for a plan that is faster so"};
  decision.promise = promise_line(next->plan, current.plan, next->before) + "; a restart takes " +
                     pp::to_text(*restart_) + ", and this saves " + pp::to_text(saved) + " within " +
                     pp::to_text(within_);
  decision.next = std::move(next);
  return decision;
}

}  // namespace pp::run_tool
