#include "libplan/search/zero_bubble/room.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "libprofile/core/error.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::usage, "auto-zb: " + message); }

std::string worker_name(std::size_t w) { return "worker " + std::to_string(w); }

void check_placement(const ProgramSet& set) {
  if (set.stage_workers.empty()) refuse("no stages; give at least one");
  if (set.micro_batches < 1) {
    refuse("micro_batches = " + std::to_string(set.micro_batches) + "; give at least 1");
  }
  if (!set.synchronous) refuse("it orders one synchronous step; choose an asynchronous schedule by name");
  for (std::size_t s = 0; s < set.stage_workers.size(); ++s) {
    const auto& workers = set.stage_workers[s];
    if (workers.size() != 1) {
      refuse("stage " + std::to_string(s) + " has " + std::to_string(workers.size()) +
             " replicas; give each stage one worker, or use 1f1b");
    }
    if (workers.front() != WorkerId{static_cast<int>(s)}) {
      refuse("stage " + std::to_string(s) + " is on worker " + std::to_string(number(workers.front())) +
             "; place stage s on worker s");
    }
  }
}

void check_size(const char* what, std::size_t found, std::size_t wanted) {
  if (found == wanted) return;
  throw Error(ErrorKind::internal,
              "auto-zb: " + std::to_string(found) + " " + what + ", expected " + std::to_string(wanted));
}

/// Optional vectors may be empty.
void check_sizes(const ZeroBubbleRequest& request) {
  const SimulationInput& input = request.pipeline;
  const std::size_t workers = input.programs.stage_workers.size();
  check_size("stage costs", input.stages.size(), workers);
  if (!request.in_flight_limit.empty()) check_size("in-flight limits", request.in_flight_limit.size(), workers);
  if (!request.memory_limit.empty()) check_size("memory limits", request.memory_limit.size(), workers);
  if (!input.micro_batch_scale.empty()) {
    check_size("micro-batch scales", input.micro_batch_scale.size(), at(input.programs.micro_batches));
  }
}

/// Bytes of one worker, as the memory walk of the simulator adds them up, or more.
class WorkerMemory {
 public:
  WorkerMemory(const SimulationInput& input, std::size_t stage)
      : costs_(input.stages[stage]), scale_(bytes_scale(input)) {}

  /// From F to W, at most: whether I has been is not looked at.
  Bytes held(std::size_t m) const {
    const Bytes kept = scaled(costs_.saved, m) + scaled(costs_.input, m);
    return std::max(kept, scaled(costs_.waiting.value_or(Bytes(0)), m));
  }
  Bytes workspace(std::size_t m) const { return scaled(costs_.workspace, m); }
  Bytes fixed() const { return costs_.fixed(); }

 private:
  Bytes scaled(Bytes bytes, std::size_t m) const {
    if (scale_.empty() || scale_[m] == 1) return bytes;
    return Bytes(std::llround(static_cast<double>(bytes.value) * scale_[m]));
  }

  const StageCosts& costs_;
  const std::vector<double>& scale_;
};

/// Lowers `room` to what fits `limit`, the largest workspace always counted.
void limit_bytes(Room& room, const WorkerMemory& memory, Bytes limit, std::size_t worker) {
  Bytes workspace;
  for (std::size_t m = 0; m < room.size(); ++m) workspace = std::max(workspace, memory.workspace(m));
  Bytes used = memory.fixed() + workspace;
  std::size_t end = 0;  // micro-batches w..end-1 are held
  for (std::size_t w = 0; w < room.size(); ++w) {
    while (end < room.size() && used + memory.held(end) <= limit) used += memory.held(end++);
    if (end == w) {
      refuse(worker_name(worker) + " needs " + std::to_string((used + memory.held(w)).value) +
             " bytes to hold micro-batch " + std::to_string(w) + ", its limit is " +
             std::to_string(limit.value) + "; raise the limit or make the micro-batches smaller");
    }
    room[w] = std::min(room[w], static_cast<int>(end));
    used -= memory.held(w);
  }
}

}  // namespace

std::vector<Room> make_rooms(const ZeroBubbleRequest& request) {
  const ProgramSet& set = request.pipeline.programs;
  check_placement(set);
  check_sizes(request);
  const std::size_t workers = set.stage_workers.size();
  const int count = set.micro_batches;
  std::vector<Room> rooms(workers, Room(at(count), count));
  for (std::size_t s = 0; s < workers; ++s) {
    if (!request.in_flight_limit.empty()) {
      const int limit = request.in_flight_limit[s];
      if (limit < 1) {
        refuse(worker_name(s) + " may hold " + std::to_string(limit) + " micro-batches; allow at least 1");
      }
      for (int w = 0; w < count; ++w) rooms[s][at(w)] = std::min(count - w, limit) + w;
    }
    if (!request.memory_limit.empty()) {
      limit_bytes(rooms[s], WorkerMemory(request.pipeline, s), request.memory_limit[s], s);
    }
  }
  return rooms;
}

}  // namespace pp::plan
