#include <string>

#include "libplan/schedule/generators.h"
#include "libprofile/core/error.h"

namespace pp::plan {
namespace {

[[noreturn]] void refuse(const ScheduleRequest& request, const std::string& message) {
  throw Error(ErrorKind::usage, "schedule " + request.name + ": " + message);
}

}  // namespace

void check_request(const ScheduleRequest& request) {
  if (request.replicas.empty()) refuse(request, "no stages; give the replicas of at least one");
  for (std::size_t s = 0; s < request.replicas.size(); ++s) {
    if (request.replicas[s] < 1) {
      refuse(request, "stage " + std::to_string(s) + " has " + std::to_string(request.replicas[s]) +
                          " replicas; give it at least 1");
    }
  }
  if (request.micro_batches < 1) {
    refuse(request, "micro_batches = " + std::to_string(request.micro_batches) + "; give at least 1");
  }
}

std::vector<int> request_windows(const ScheduleRequest& request) {
  if (request.window != WindowRule::explicit_list) return windows(request.window, request.replicas);
  if (request.windows.size() != request.replicas.size()) {
    refuse(request, std::to_string(request.windows.size()) + " windows for " +
                        std::to_string(request.replicas.size()) + " stages; give one per stage");
  }
  for (std::size_t s = 0; s < request.windows.size(); ++s) {
    if (request.windows[s] < 1) {
      refuse(request, "stage " + std::to_string(s) + " has a window of " + std::to_string(request.windows[s]) +
                          " micro-batches; give at least 1");
    }
  }
  return request.windows;
}

void append_update(Program& program, StageId stage, int replicas) {
  if (replicas > 1) program.push_back({OpKind::all_reduce, stage, 0});
  program.push_back({OpKind::update, stage, 0});
}

}  // namespace pp::plan
