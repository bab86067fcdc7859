// Asynchronous 1F1B and 1F1B-RR (PipeDream, Narayanan et al., SOSP'19; schedules.md 5.2): a window of forwards,
// then one forward, one backward and one update in turn for as long as micro-batches come.
#include "libplan/schedule/generators.h"
#include "libprofile/core/error.h"

namespace pp::plan {
namespace {

Stream replica_stream(StageId stage, int q, int replicas, int window) {
  Stream stream;
  stream.period = replicas;
  for (int i = 0; i + 1 < window; ++i) stream.prologue.push_back({OpKind::forward, stage, q + i * replicas});
  stream.body.push_back({OpKind::forward, stage, q + (window - 1) * replicas});
  stream.body.push_back({OpKind::backward, stage, q});
  append_update(stream.body, stage, replicas);
  return stream;
}

}  // namespace

std::vector<WorkerProgram> generate_pipedream(const ScheduleRequest& request) {
  check_request(request);
  if (request.micro_batches != 1) {
    throw Error(ErrorKind::usage,
                "schedule pipedream: updates after every micro-batch and needs micro_batches = 1, found " +
                    std::to_string(request.micro_batches));
  }
  const std::vector<int> window = request_windows(request);
  std::vector<WorkerProgram> workers;
  for (std::size_t s = 0; s < request.replicas.size(); ++s) {
    for (int q = 0; q < request.replicas[s]; ++q) {
      workers.push_back({{}, replica_stream(StageId{static_cast<int>(s)}, q, request.replicas[s], window[s])});
    }
  }
  return workers;
}

}  // namespace pp::plan
