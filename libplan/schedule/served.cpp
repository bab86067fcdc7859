// Replicas of the whole model around a parameter server, whose U hands their gradient to it: what the server
// makes of it is the weight policy's. Synchronous (Li et al., OSDI 2014), Downpour SGD (Dean et al., NIPS
// 2012), stale synchronous parallel (Ho et al., NIPS 2013), and Hogwild (Recht et al., NIPS 2011), whose server
// is memory that all share.
#include "libplan/schedule/generators.h"

namespace pp::plan {
namespace {

int replicas_of_one_stage(const ScheduleRequest& request) {
  if (request.replicas.size() == 1) return request.replicas.front();
  refuse(request, std::to_string(request.replicas.size()) +
                      " stages; every replica holds the whole model, give one stage with all replicas");
}

}  // namespace

Schedule generate_parameter_server(const ScheduleRequest& request) {
  const int replicas = replicas_of_one_stage(request);
  Schedule schedule{replicated_placement(request.replicas), {}};
  for (int q = 0; q < replicas; ++q) {
    Program program;
    for (int m = q; m < request.micro_batches; m += replicas) {
      program.push_back({OpKind::forward, StageId{0}, m});
      program.push_back({OpKind::backward, StageId{0}, m});
    }
    program.push_back({OpKind::update, StageId{0}, 0});
    schedule.workers.push_back({std::move(program), std::nullopt});
  }
  return schedule;
}

Schedule generate_asynchronous_replicas(const ScheduleRequest& request) {
  const int replicas = replicas_of_one_stage(request);
  if (request.micro_batches != 1) {
    refuse(request, "every mini-batch is pushed by itself and needs micro_batches = 1, found " +
                        std::to_string(request.micro_batches));
  }
  Schedule schedule{replicated_placement(request.replicas), {}};
  for (int q = 0; q < replicas; ++q) {
    Stream stream;
    stream.period = replicas;
    stream.body = {
        {OpKind::forward, StageId{0}, q}, {OpKind::backward, StageId{0}, q}, {OpKind::update, StageId{0}, 0}};
    schedule.workers.push_back({{}, std::move(stream)});
  }
  return schedule;
}

}  // namespace pp::plan
