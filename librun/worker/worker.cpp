#include "librun/worker/worker.h"

#include <algorithm>
#include <exception>

#include "libprofile/core/error.h"
#include "libprofile/measure/compute_device.h"
#include "libprofile/model/errors.h"

namespace pp::run {

namespace {

// Whatever an operation throws becomes a failure of the run that says where.
template <class Failure>
Failure located(Failure failure, WorkerId worker, const plan::Op& op) {
  failure.add_context(plan::to_text(op));
  if (op.kind != plan::OpKind::tied_all_reduce)
    failure.add_context("stage " + std::to_string(number(op.stage)));
  failure.add_context("worker " + std::to_string(number(worker)));
  return failure;
}

void weigh(StepGradients& gradients, double weight) {
  for (at::Tensor& gradient : gradients.uses) {
    if (gradient.defined()) gradient.mul_(weight);
  }
}

constexpr auto kLessMemory = "; plan with more stages, smaller micro-batches or --recompute auto";

}  // namespace

Worker::Worker(Job& job, WorkerId id)
    : job_(job),
      id_(id),
      device_(profile::tensor_device(job.setup.devices[index(id)].kind, job.setup.devices[index(id)].index)),
      generator_(profile::make_generator(device_, /*seed=*/0)),
      starting_(std::in_place, job.coordinator) {
  for (const plan::Op& op : job.programs[index(id)]) {
    if (op.kind == plan::OpKind::recompute) recomputed_.emplace(op.stage, op.micro_batch);
  }
}

void Worker::run() noexcept {
  try {
    try {
      const profile::ChargeMemory charged(memory_, job_.setup.devices[index(id_)].kind);
      train();
    } catch (const Stopped&) {
      return;  // another worker has the error
    } catch (...) {
      model::detail::rethrow_as_error();
    }
  } catch (const model::OutOfMemory& error) {
    job_.coordinator.stop(std::make_exception_ptr(model::OutOfMemory(std::string(error.what()) + kLessMemory)));
  } catch (...) {
    job_.coordinator.stop(std::current_exception());
  }
}

void Worker::train() {
  const std::vector<int>& cores = job_.setup.cores.cores[index(id_)];
  pin_thread(cores);
  profile::enter_device(device_, std::max(1, static_cast<int>(cores.size())));
  make_stages();
  starting_.reset();
  const Length& length = job_.setup.length;
  for (int epoch = 0; epoch < length.epochs(); ++epoch) {
    order_ = epoch_order(length.epoch.samples, job_.options.seed, epoch, job_.options.shuffle);
    position_ = {epoch, length.first(epoch), length.first(epoch), {}};
    memory_.reset_peak();
    const bool whole = job_.setup.streams ? run_stream(length.count(epoch)) : run_steps(length.count(epoch));
    record_.peak = std::max(record_.peak, memory_.peak());
    if (!whole) return;
    if (job_.evaluates() && !evaluate()) return;
  }
}

void Worker::make_stages() {
  for (std::size_t s = 0; s < job_.plan.stages.size(); ++s) {
    const std::vector<WorkerId>& workers = job_.plan.stages[s].workers;
    if (std::find(workers.begin(), workers.end(), id_) == workers.end()) continue;
    StageOptions options;
    options.layers = job_.layers[s];
    options.with_loss = s + 1 == job_.plan.stages.size();
    options.recompute = job_.recompute[s];
    options.dtype = job_.plan.training.dtype;
    options.device = device_;
    options.seed = job_.options.seed;
    options.optimizer = make_optimizer(job_.plan, job_.options);
    stages_.try_emplace(StageId{static_cast<int>(s)}, job_.setup.model, std::move(options));
  }
}

bool Worker::run_steps(Unit count) {
  for (Unit i = 0; i < count; ++i) {
    position_.unit = position_.first + i;
    if (!job_.gate.admit(id_, position_.unit)) return false;
    step();
  }
  return true;
}

void Worker::step() {
  const int size = job_.setup.length.epoch.size(position_.unit - position_.first);
  position_.offsets = micro_batch_offsets(size, job_.plan.training.micro_batches);
  for (const plan::Op& op : job_.programs[index(id_)]) execute(op);
  job_.coordinator.announce(id_, std::nullopt);
  job_.ledger.finish(position_.unit, Coordinator::Clock::now());
  record_.busy.push_back(std::exchange(busy_, Seconds(0)));
}

// A mini-batch beyond the closed gate is left out with its backward, and so is an update for which no backward
// has been done.
bool Worker::run_stream(Unit count) {
  const auto& stream = *job_.plan.workers[index(id_)].program.stream;
  std::set<StageId> skipped;
  Unit last = -1;  // of the mini-batches that ran
  for (const plan::Op& op : plan::expand(stream, static_cast<int>(count))) {
    switch (op.kind) {
      case plan::OpKind::forward:
        if (!job_.gate.admit(id_, position_.first + op.micro_batch)) continue;
        last = std::max<Unit>(last, op.micro_batch);
        break;
      case plan::OpKind::all_reduce:
      case plan::OpKind::update:
        if (skipped.contains(op.stage) && !due_.contains(op.stage)) continue;
        break;
      default:
        if (stages_.at(op.stage).in_flight(op.micro_batch)) break;
        skipped.insert(op.stage);
        continue;
    }
    execute(op);
    if (plan::completes_backward(op.kind)) due_[op.stage] = op.micro_batch;
    if (op.kind == plan::OpKind::update) due_.erase(op.stage);
  }
  job_.coordinator.announce(id_, std::nullopt);
  const Unit ran =
      (last + job_.setup.round) / job_.setup.round * job_.setup.round;  // whole rounds, over all replicas
  if (last >= 0) record_.busy.push_back(std::exchange(busy_, Seconds(0)) / static_cast<double>(ran));
  return job_.gate.admit(id_, position_.first + count - 1);
}

void Worker::execute(const plan::Op& op) {
  try {
    try {
      job_.coordinator.announce(id_, op);
      if (job_.options.before_op) job_.options.before_op(unit_of(op), id_, op);
      dispatch(op);
    } catch (const Stopped&) {
      throw;
    } catch (...) {
      model::detail::rethrow_as_error();
    }
  } catch (const model::OutOfMemory& error) {
    throw located(model::OutOfMemory(error.what()), id_, op);
  } catch (const Error& error) {
    throw located(Error(ErrorKind::run, error.what()), id_, op);
  }
}

void Worker::dispatch(const plan::Op& op) {
  if (op.kind == plan::OpKind::tied_all_reduce) return tied_all_reduce(op);
  Stage& stage = stages_.at(op.stage);
  switch (op.kind) {
    case plan::OpKind::forward: forward(op, stage); break;
    case plan::OpKind::recompute: recompute(op, stage); break;
    case plan::OpKind::backward:
    case plan::OpKind::input_gradient: backward(op, stage); break;
    case plan::OpKind::weight_gradient: weight_gradient(op, stage); break;
    case plan::OpKind::all_reduce: all_reduce(op, stage); break;
    case plan::OpKind::update: update(op, stage); break;
    case plan::OpKind::tied_all_reduce:  // above
    case plan::OpKind::load:
    case plan::OpKind::evict:
      throw Error(ErrorKind::internal, plan::to_text(op) + " passed the checks before the run");
  }
  note_bytes();
}

void Worker::forward(const plan::Op& op, Stage& stage) {
  const Piece piece = this->piece(op);
  const Keep keep = recomputed_.contains({op.stage, op.micro_batch}) ? Keep::inputs : Keep::graphs;
  std::vector<at::Tensor> inputs = receive_inputs(op, piece);
  const Time begin = Coordinator::Clock::now();
  cut_data(op, piece, inputs);
  std::vector<at::Tensor> outputs = stage.forward(op.micro_batch, inputs, piece.key, generator_, keep);
  inputs.clear();
  note(op, begin, finished());
  const Tag tag{.direction = Direction::activation, .round = piece.round, .micro_batch = op.micro_batch};
  send(&op, messages_of(op.stage, tag, std::move(outputs)));
  if (stage.segment().has_loss()) job_.ledger.loss(piece.unit, piece.loss_index, stage.loss(op.micro_batch));
}

// What the data provide is cut again, not kept.
void Worker::recompute(const plan::Op& op, Stage& stage) {
  const Piece piece = this->piece(op);
  const Time begin = Coordinator::Clock::now();
  std::vector<at::Tensor> inputs(job_.wiring[index(op.stage)].inputs.size());
  cut_data(op, piece, inputs);
  stage.recompute(op.micro_batch, inputs, piece.key, generator_);
  note(op, begin, finished());
}

void Worker::cut_data(const plan::Op& op, const Piece& piece, std::vector<at::Tensor>& inputs) const {
  const StageWiring& wiring = job_.wiring[index(op.stage)];
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (wiring.inputs[i].producer < 0)
      inputs[i] = cut(job_.training, wiring.inputs[i].source, piece.samples).to(device_);
  }
}

void Worker::backward(const plan::Op& op, Stage& stage) {
  const Piece piece = this->piece(op);
  position_.unit = piece.unit;
  std::vector<std::vector<at::Tensor>> arrived = receive_gradients(op, piece);
  const Time begin = Coordinator::Clock::now();
  std::vector<at::Tensor> gradients = op.kind == plan::OpKind::backward
                                          ? stage.backward(op.micro_batch, arrived, piece.weight)
                                          : stage.input_gradient(op.micro_batch, arrived, piece.weight);
  arrived.clear();
  const Time end = finished();
  note(op, begin, end);
  send_gradients(op, piece, std::move(gradients));
  if (job_.setup.streams && op.kind == plan::OpKind::backward) job_.ledger.finish(piece.unit, end);
}

void Worker::weight_gradient(const plan::Op& op, Stage& stage) {
  const Time begin = Coordinator::Clock::now();
  stage.weight_gradient(op.micro_batch);
  const Time end = finished();
  note(op, begin, end);
  if (job_.setup.streams) job_.ledger.finish(piece(op).unit, end);
}

void Worker::all_reduce(const plan::Op& op, Stage& stage) {
  Seconds elapsed{};
  StepGradients mine = stage.take_gradients();
  if (job_.setup.streams) weigh(mine, share_of_round(op.stage));
  finished();
  AllReduce& reducer = *job_.reducers[index(op.stage)];
  reduced_[op.stage] = reducer.reduce(id_, std::move(mine), device_, elapsed);
  const Time end = Coordinator::Clock::now();
  note(op, end - std::chrono::duration_cast<Coordinator::Clock::duration>(elapsed), end);
}

// In a stream each replica brings the gradient of a mini-batch of its own; the update is for all of their
// samples.
double Worker::share_of_round(StageId stage) const {
  const EpochShape& epoch = job_.setup.length.epoch;
  const auto replicas = static_cast<int>(job_.plan.stages[index(stage)].workers.size());
  const int mine = due_.at(stage), first = mine / replicas * replicas;
  double samples = 0;
  for (int i = first; i < first + replicas; ++i) samples += epoch.size(i);
  return epoch.size(mine) / samples;
}

// Copies of shared weights in several stages; stages with replicas have reduced theirs before.
void Worker::tied_all_reduce(const plan::Op& op) {
  const auto group = static_cast<std::size_t>(op.micro_batch);
  const int owner = job_.tied_owner(group);
  const Time begin = Coordinator::Clock::now();
  UseGradients mine;
  for (const StageId id : job_.plan.tied[group].stages) {
    const auto stage = stages_.find(id);
    if (stage == stages_.end()) continue;
    if (!reduced_.contains(id)) reduced_[id] = stage->second.take_gradients();
    mine.merge(stage->second.tied_gradients(reduced_[id], owner));
  }
  note(op, begin, finished());
  const TiedGradients sums = job_.tied_reducers[group]->reduce(id_, std::move(mine), device_);
  for (const StageId id : job_.plan.tied[group].stages) {
    const auto stage = stages_.find(id);
    if (stage != stages_.end()) stage->second.set_tied_gradients(reduced_[id], owner, sums);
  }
}

void Worker::update(const plan::Op& op, Stage& stage) {
  const Time begin = Coordinator::Clock::now();
  const auto reduced = reduced_.find(op.stage);
  if (reduced == reduced_.end()) {
    stage.update(stage.take_gradients(), job_.options.learning_rate);
  } else {
    stage.update(std::move(reduced->second), job_.options.learning_rate);
    reduced_.erase(reduced);
  }
  note(op, begin, finished());
}

Worker::Time Worker::finished() const {
  profile::wait_for(device_);
  return Coordinator::Clock::now();
}

Unit Worker::unit_of(const plan::Op& op) const {
  const bool streamed = job_.setup.streams && plan::has_micro_batch(op.kind);
  return streamed ? position_.first + op.micro_batch : position_.unit;
}

Worker::Piece Worker::piece(const plan::Op& op) const {
  const EpochShape& epoch = job_.setup.length.epoch;
  const std::span<const std::int64_t> order(order_);
  const auto batch = [&](Unit i) {
    return order.subspan(static_cast<std::size_t>(epoch.first(i)), static_cast<std::size_t>(epoch.size(i)));
  };
  Piece piece;
  piece.unit = unit_of(op);
  if (job_.setup.streams) {
    piece.round = position_.epoch;
    piece.samples = batch(op.micro_batch);
  } else {
    piece.round = position_.unit;
    piece.loss_index = op.micro_batch;
    const auto m = static_cast<std::size_t>(op.micro_batch);
    const auto first = static_cast<std::size_t>(position_.offsets[m]),
               end = static_cast<std::size_t>(position_.offsets[m + 1]);
    piece.samples = batch(position_.unit - position_.first).subspan(first, end - first);
    piece.weight = static_cast<double>(end - first) / position_.offsets.back();
  }
  piece.key = {job_.options.seed, piece.unit, piece.loss_index};
  return piece;
}

std::unique_ptr<model::Optimizer> make_optimizer(const plan::Plan& plan, const RunOptions& options) {
  if (plan.training.optimizer == plan::OptimizerName::sgd) {
    return model::make_sgd({.momentum = options.momentum, .weight_decay = options.weight_decay});
  }
  return model::make_adamw({.beta1 = options.beta1,
                            .beta2 = options.beta2,
                            .epsilon = options.epsilon,
                            .weight_decay = options.weight_decay});
}

}  // namespace pp::run
