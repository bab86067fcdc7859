#include "librun/worker/serving.h"

#include <algorithm>
#include <memory>

namespace pp::run {

Serving::Serving(WorkerState& state, Stage& stage) : state_(state), stage_(stage) {
  Job& job = state.job;
  const std::vector<WorkerId>& replicas = job.plan.stages.front().workers;
  const auto place = static_cast<int>(std::ranges::find(replicas, state.id) - replicas.begin());
  const Periods periods{job.options.fetch_every.value_or(1), job.options.push_every.value_or(1)};
  if (!job.server) {
    remote_.emplace(job.coordinator, *job.setup.peers, RemoteServer::Ends{state.id, job.server_rank()},
                    stage.flat_weights());
    replica_.emplace(*remote_, place, periods);
    return;
  }
  replica_.emplace(*job.server, place, periods);
  if (!keeps_server()) return;
  const auto own_optimizer = [&] {
    return std::make_unique<model::Optimizer>(job.plan.training.optimizer, job.options.optimizer,
                                              job.options.weight_decay);
  };
  job.server->open(
      make_store(job.plan.schedule.weight_policy, stage, static_cast<int>(replicas.size()), own_optimizer));
  const at::Tensor weights = stage.flat_weights();
  if (job.request_server)
    job.request_server->open(weights.defined() ? stage.parameters_of(weights) : FlatTensors{});
}

void Serving::leave() {
  replica_->leave(stage_);
  if (keeps_server()) state_.record.server = state_.job.server->figures(state_.id);
}

void Serving::close() {
  replica_->close();
  if (state_.job.request_server && keeps_server()) state_.job.request_server->await_closed(state_.id);
}

}  // namespace pp::run
