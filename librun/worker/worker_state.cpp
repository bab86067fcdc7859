#include "librun/worker/worker_state.h"

#include <algorithm>
#include <limits>

#include "libprofile/device/compute_device.h"
#include "libprofile/device/machine.h"
#include "libprofile/model/errors.h"
#include "librun/options/learning_rate.h"
#include "librun/swap/residency.h"

namespace pp::run {

namespace {

constexpr Bytes kNoLimit(std::numeric_limits<std::int64_t>::max());

at::Device device_of(const Job& job, WorkerId worker) {
  const Device& device = job.setup.devices[index(worker)];
  return profile::tensor_device(device.kind, device.index);
}

}  // namespace

WorkerState::WorkerState(Job& the_job, WorkerId worker)
    : job(the_job),
      id(worker),
      device(device_of(the_job, worker)),
      generator(profile::make_generator(device, /*seed=*/0)),
      memory(
          (the_job.swapped ? device_limit(the_job.plan, the_job.options, worker) : the_job.options.memory_limit)
              .value_or(kNoLimit)),
      loss_weights(the_job),
      trained(the_job.setup.start.position.step) {}

WorkerId WorkerState::owner(Direction way, StageId stage, const Operation& operation) const {
  return (way == Direction::gradient ? job.backward_owners : *owners).of(stage, operation.local);
}

std::int64_t WorkerState::number_of(const Operation& operation) const {
  const ChannelOptions& numbering = job.numbering;
  if (trains()) return operation.step * numbering.step_micro_batches + operation.micro_batch;
  return epoch * numbering.evaluation_micro_batches + operation.local;
}

// Replicas that take turns of steps share an update: its rate is that of the first one's step.
double WorkerState::rate(const Operation& operation) const {
  const Step since = operation.step - range.first;
  const bool alone = job.setup.round == 1 || job.served();
  const Step turns = alone ? 1 : std::ssize(job.plan.stages[index(operation.op.stage)].workers);
  return rate_at(job.setup.rates, job.options.learning_rate, job.setup.length.total,
                 operation.step - since % turns);
}

WorkerState::Time WorkerState::await_finish() const {
  profile::wait_for(device);
  return Coordinator::Clock::now();
}

// An allocation on the CPU is refused at once; what others hand over and what devices allocate is seen here.
void WorkerState::check_memory(Bytes peak) const {
  if (peak > memory.limit()) throw model::OutOfMemory("out of memory: " + to_text(peak) + " held");
}

void WorkerState::note_peak() {
  LoggedOp& op = log->current();
  op.peak = memory.peak();
  memory.reset_peak();
  check_memory(op.peak);
  record.peak = std::max(record.peak, op.peak);
  op.held = memory.live();
}

void WorkerState::note_bytes() {
  int in_flight = 0;
  StageBytes sum;
  for (const auto& [stage_id, stage] : stages) {
    in_flight += stage.flight_count();
    record.peak_versions = std::max(record.peak_versions, stage.version_count());
    const StageBytes bytes = stage.bytes();
    sum.weights += bytes.weights;
    sum.versions += bytes.versions;
    sum.gradients += bytes.gradients;
    sum.optimizer += bytes.optimizer;
  }
  const Bytes live = memory.live();
  log->current().held = live;
  const Bytes kept = live - sum.weights - sum.versions - sum.gradients - sum.optimizer;
  record.peak_in_flight = std::max(record.peak_in_flight, in_flight);
  record.weights = std::max(record.weights, sum.weights);
  record.versions = std::max(record.versions, sum.versions);
  record.gradients = std::max(record.gradients, sum.gradients);
  record.optimizer = std::max(record.optimizer, sum.optimizer);
  record.saved = std::max(record.saved, kept);
}

void Turn::start(const Operation& next, const plan::OpParts& parts) {
  operation = next;
  parts_ = parts;
  observer = nullptr;
  begun_ = ended_ = false;
  if (next.op.kind == plan::OpKind::tied_all_reduce) return;  // of several stages
  const StageWiring& wiring = state_.job.wiring[index(next.op.stage)];
  inputs.resize(wiring.inputs.size());
  gradients.resize(wiring.outputs.size());
}

void Turn::finish() {
  end();
  inputs.clear();
  gradients.clear();
  outgoing.clear();
  if (!state_.trains()) pass = {};
}

void Turn::begin() {
  if (std::exchange(begun_, true)) return;
  if (state_.trains()) state_.log->begin(operation, parts_);
  begun_at_ = Coordinator::Clock::now();
}

void Turn::end() {
  if (!begun_ || std::exchange(ended_, true)) return;
  if (state_.trains()) {
    state_.log->end();
    return state_.note_peak();
  }
  ended_at_ = state_.job.inference ? state_.await_finish() : Coordinator::Clock::now();
  state_.check_memory(state_.memory.peak());
}

void Turn::end(Time begin, Time end) {
  ended_ = true;
  state_.log->end(begin, end);
  state_.note_peak();
}

void Turn::end_after(Seconds elapsed) {
  const Time now = state_.await_finish();
  end(now - std::chrono::duration_cast<Coordinator::Clock::duration>(elapsed), now);
}

}  // namespace pp::run
