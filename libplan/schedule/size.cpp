#include "libplan/schedule/size.h"

#include <algorithm>

#include "libplan/schedule/generators.h"
#include "libplan/schedule/limits.h"

namespace pp::plan {
namespace {

/// What a stream runs in front of its first backward.
double prologue_operations(const ScheduleRequest& request) {
  const ScheduleRow& row = require_schedule(request.name);
  if (row.synchronous || !row.windowed) return 0;
  double operations = 0;
  const std::vector<int> windows = request_windows(request);
  for (std::size_t s = 0; s < windows.size(); ++s)
    operations += static_cast<double>(request.replicas[s]) * windows[s];
  return operations;
}

}  // namespace

bool is_clocked(const ScheduleRequest& request) {
  return require_schedule(request.name).rules == RuleSet::clocked;
}

std::int64_t clocked_steps(const ScheduleRequest& request) { return 6 * std::ssize(request.replicas); }

double operation_count(const ScheduleRequest& request, double length) {
  const ScheduleRow& row = require_schedule(request.name);
  const bool recomputes =
      std::ranges::any_of(request.recompute, [](Recompute r) { return r != Recompute::never; });
  double places = 0;  // each runs all micro-batches of its stages
  double workers = 0;
  for (const int replicas : request.replicas) {
    places += row.splits ? replicas : 1;
    workers += replicas;
  }
  const int kinds = 2 + int{row.split_backward} + int{recomputes} + int{is_clocked(request)};
  const double stages = static_cast<double>(request.replicas.size());
  if (is_clocked(request)) length = std::max(length + stages - 1, static_cast<double>(clocked_steps(request)));
  const double updates = row.synchronous ? 2 * workers : 0;
  return chunks_of(request) * (places * length * request.token_count * kinds + updates) +
         prologue_operations(request);
}

void check_size(const ScheduleRequest& request, double length) {
  if (operation_count(request, length) <= static_cast<double>(kOperationLimit)) return;
  refuse(request, "stages times micro-batches make more than " + std::to_string(kOperationLimit) +
                      " operations, the limit; use fewer stages or micro-batches");
}

}  // namespace pp::plan
