#include "librun/worker/worker.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <iterator>
#include <limits>
#include <ranges>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/device/compute_device.h"
#include "libprofile/device/machine.h"
#include "libprofile/model/errors.h"
#include "librun/options/optimizer.h"
#include "librun/swap/residency.h"
#include "librun/worker/located.h"

namespace pp::run {

namespace {

constexpr Bytes kNoLimit(std::numeric_limits<std::int64_t>::max());

// The limit and the plan's promise, where there are any, and what helps.
std::string with_remedy(const Job& job, WorkerId worker, const std::string& message) {
  std::string text = message;
  const Bytes peak = index(worker) < job.plan.predicted.workers.size()
                         ? job.plan.predicted.workers[index(worker)].memory.peak
                         : Bytes(0);
  if (const std::optional<Bytes>& limit = job.options.memory_limit) {
    text += "; --memory-limit is " + to_text(*limit);
    if (peak > Bytes(0)) text += ", the plan predicts a peak of " + to_text(peak);
  }
  return text + "; plan with more stages, smaller micro-batches or --recompute auto";
}

}  // namespace

Worker::Worker(Job& job, WorkerId id)
    : job_(job),
      id_(id),
      device_(profile::tensor_device(job.setup.devices[index(id)].kind, job.setup.devices[index(id)].index)),
      generator_(profile::make_generator(device_, /*seed=*/0)),
      memory_((job.swapped ? device_limit(job.plan, job.options, id) : job.options.memory_limit)
                  .value_or(kNoLimit)),
      trained_(job.setup.start.position.step),
      loss_weights_(job),
      loss_scale_(job.setup.start.position.loss_scale),
      initial_(job.initial),
      starting_(std::in_place, job.coordinator) {}

void Worker::run() noexcept {
  try {
    try {
      const profile::ChargeMemory charged(memory_, job_.setup.devices[index(id_)].kind);
      serve();
    } catch (const Stopped&) {
      return;  // another worker has the error
    } catch (...) {
      model::detail::rethrow_as_error();
    }
  } catch (const model::OutOfMemory& error) {
    model::OutOfMemory told(with_remedy(job_, id_, error.message()));
    if (error.contexts().empty()) told.add_context("worker " + std::to_string(number(id_)));
    for (const std::string& place : std::views::reverse(error.contexts())) told.add_context(place);
    job_.coordinator.stop(std::make_exception_ptr(told));
  } catch (...) {
    job_.coordinator.stop(std::current_exception());
  }
}

void Worker::serve() {
  const std::vector<int>& cores = job_.setup.cores.cores[index(id_)];
  profile::pin_thread(cores);
  profile::enter_device(device_, std::max(1, static_cast<int>(cores.size())));
  profile::take_library_memory(device_);
  make_stages();
  starting_.reset();
  OperationLog log(job_, id_, device_, record_);
  log_ = &log;
  DataFeed feed(job_, id_, device_);
  while (true) {
    job_.coordinator.announce(id_, std::nullopt);
    const Command command = job_.commands.next(id_);
    switch (command.kind) {
      case Command::Kind::train: train(command, feed); break;
      case Command::Kind::evaluate:
      case Command::Kind::infer: evaluate(command, feed); break;
      case Command::Kind::snapshot: snapshot(command); break;
      case Command::Kind::stop: return leave_server();
    }
  }
}

void Worker::train(const Command& command, DataFeed& feed) {
  const EpochShape& epoch = job_.setup.length.epoch;
  context_ = {.feed = &feed, .owners = &job_.owners, .range = command.range, .epoch = command.epoch};
  for (auto& [id, stage] : stages_) stage.restart();
  memory_.reset_peak();
  next_load_.clear();
  if (swapper_) swapper_->count(true);
  const Cursor cursor(job_.streams[index(id_)], !job_.setup.streams, epoch, command.range);
  const auto order = [&] {
    return epoch_order(epoch.samples, job_.options.seed, command.epoch,
                       job_.options.shuffle && !job_.setup.clocked);
  };
  feed.begin(*job_.training, command.epoch, order, cursor);
  log_->begin_range();
  walk(cursor);
  if (job_.numbering.gradient_lag > 0) drop_late_gradients();
  if (replica_) replica_->leave(stages_.begin()->second);
  if (keeps_server()) record_.server = job_.server->figures(id_);
  log_->end_range(job_.commands.end_of_range(id_) - command.range.first);
  record_.peak = std::max(record_.peak, memory_.peak());
  trained_ = job_.commands.end_of_range(id_);
  record_.graphs = {};
  for (const auto& [id, stage] : stages_) record_.graphs += stage.recorded();
  if (swapper_) swapper_->count(false);
}

void Worker::evaluate(const Command& command, DataFeed& feed) {
  context_ = {.feed = &feed,
              .owners = &job_.forward_owners,
              .direction = Direction::evaluation,
              .range = command.range,
              .epoch = command.epoch};
  const Cursor cursor(job_.forward_streams[index(id_)], /*of_step=*/false, job_.test_shape, command.range);
  const auto order = [&] {
    return epoch_order(job_.test->samples(), /*seed=*/0, /*epoch=*/0, /*shuffle=*/false);
  };
  feed.begin(*job_.test, command.epoch, order, cursor);
  if (job_.inference) memory_.reset_peak();
  walk(cursor);
  job_.ledger.evaluated();
  if (job_.inference) record_.busy.push_back(std::exchange(busy_, Seconds(0)));
}

// The copies are charged to no worker: they are on their way to a file.
void Worker::snapshot(const Command& command) {
  job_.snapshots.begin(id_, command.step, command.last);
  const Time begin = Coordinator::Clock::now();
  const profile::ChargeMemory charged{profile::MemoryAccount()};
  std::vector<Stage::LayerState> layers;
  for (auto& [id, stage] : stages_) {
    if (!hands_in(id) && !job_.shares_state(id)) continue;
    std::ranges::move(snapshot_of(id, stage), std::back_inserter(layers));
  }
  job_.snapshots.add(command.step, command.last, std::move(layers), await_finish() - begin);
}

void Worker::walk(Cursor cursor) {
  const bool by_step = context_.trains() && !job_.setup.streams;
  Step admitted = context_.range.first;  // steps below it may run
  bool in_step = false;
  const auto leave_step = [&] {
    if (std::exchange(in_step, false) && by_step) job_.coordinator.announce(id_, std::nullopt);
  };
  const auto prepare = [&](Operation& operation) {
    if (job_.inference) job_.inference->locate(operation);
    expect(operation);
  };
  bool prepared = false;
  std::optional<Operation> next;
  for (std::optional<Operation> operation = cursor.next(); operation; operation = next) {
    if (operation->step >= admitted) {
      leave_step();
      if (!job_.commands.admit(id_, operation->step)) {
        cursor.end_at(job_.commands.end_of_range(id_));
        next = cursor.next();
        continue;
      }
      admitted = operation->step + 1;
      in_step = true;
    }
    if (!prepared) prepare(*operation);
    next = cursor.next();
    prepared = next && next->step < admitted;
    if (prepared) prepare(*next);
    next_op_ = next ? std::optional(next->op) : std::nullopt;
    execute(*operation);
  }
  leave_step();
}

void Worker::make_stages() {
  if (job_.swapped) {
    swapper_.emplace(job_.coordinator, *job_.host, job_.plan, id_, device_, record_.swaps);
    loads_ = loads_for_updates();
  }
  for (std::size_t s = 0; s < job_.plan.stages.size(); ++s) {
    const std::vector<WorkerId>& workers = job_.plan.stages[s].workers;
    if (std::find(workers.begin(), workers.end(), id_) != workers.end()) make_stage(s);
  }
  initial_.reset();
}

void Worker::make_stage(std::size_t s) {
  const StageId id{static_cast<int>(s)};
  StageOptions options;
  options.layers = job_.layers[s];
  options.with_loss = job_.setup.model.graph.loss && s + 1 == job_.plan.stages.size();
  options.recompute = job_.recompute[s];
  options.dtype = job_.plan.training.dtype;
  options.format = job_.plan.training.memory_format;
  options.autocast = job_.options.autocast;
  options.kernels = std::make_shared<const model::Kernels>(job_.plan.training.kernels);
  options.device = device_;
  options.seed = job_.options.seed;
  if (!job_.inference) {
    options.optimizer = make_optimizer(job_.plan.training.optimizer, job_.options);
    options.rules = job_.options.rules;
    options.policy = job_.plan.schedule.weight_policy;
    options.per_update = job_.plan.training.micro_batches;
    options.master = job_.plan.training.precision == plan::Precision::mixed;
    if (job_.shares_state(id)) {
      const std::vector<WorkerId>& replicas = job_.plan.stages[s].workers;
      options.owners = replicas.size();
      options.owner = static_cast<std::size_t>(std::ranges::find(replicas, id_) - replicas.begin());
    }
    const auto& recorded = job_.setup.recorded[index(id_)];
    if (recorded.contains(id)) options.recorded = {recorded.at(id), memory_};
  }
  options.stages = static_cast<int>(job_.plan.stages.size());
  options.index = static_cast<int>(s);
  const auto where = [&] {
    return "worker " + std::to_string(number(id_)) + ": stage " + std::to_string(s) + ": its weights";
  };
  std::optional<profile::ChargeMemory> on_host;  // until it is adopted
  if (swapper_) on_host.emplace(swapper_->host());
  model::detail::guarded(where, [&] {
    Stage& stage = stages_.try_emplace(id, job_.setup.model, std::move(options)).first->second;
    if (initial_) stage.restore(initial_->tensors, initial_->optimizer);
    if (job_.served()) join_server(stage);
    if (swapper_) swapper_->adopt(id, stage, trained_);
  });
}

// The first replica brings the weights, and goes on from a checkpoint's optimizer.
void Worker::join_server(Stage& stage) {
  const std::vector<WorkerId>& replicas = job_.plan.stages.front().workers;
  const auto place = static_cast<int>(std::ranges::find(replicas, id_) - replicas.begin());
  const Periods periods{job_.options.fetch_every.value_or(1), job_.options.push_every.value_or(1)};
  if (!job_.server) {
    remote_server_.emplace(job_.coordinator, *job_.setup.peers, RemoteServer::Ends{id_, job_.server_rank()},
                           stage.flat_weights());
    replica_.emplace(*remote_server_, place, periods);
    return;
  }
  replica_.emplace(*job_.server, place, periods);
  if (!keeps_server()) return;
  const auto own_optimizer = [&] { return make_optimizer(job_.plan.training.optimizer, job_.options); };
  job_.server->open(
      make_store(job_.plan.schedule.weight_policy, stage, static_cast<int>(replicas.size()), own_optimizer));
  const at::Tensor weights = stage.flat_weights();
  if (job_.request_server)
    job_.request_server->open(weights.defined() ? stage.parameters_of(weights) : FlatTensors{});
}

void Worker::leave_server() {
  if (replica_) replica_->close();
  if (job_.request_server && keeps_server()) job_.request_server->await_closed(id_);
}

bool Worker::keeps_server() const { return job_.served() && id_ == job_.plan.stages.front().workers.front(); }

void Worker::execute(const Operation& operation) {
  located(id_, operation.op, [&] {
    job_.coordinator.announce(id_, operation.op);
    if (job_.options.before_op)
      job_.options.before_op(context_.trains() ? operation.step : -1, id_, operation.op);
    dispatch(operation);
  });
}

// An allocation on the CPU is refused at once; what others hand over and what devices allocate is seen here.
void Worker::check_memory(Bytes peak) const {
  if (peak > memory_.limit()) throw model::OutOfMemory("out of memory: " + to_text(peak) + " held");
}

void Worker::dispatch(const Operation& operation) {
  if (operation.op.kind == plan::OpKind::tied_all_reduce) {
    tied_all_reduce(operation);
    return log_->close();
  }
  Stage& stage = stages_.at(operation.op.stage);
  if (swapper_) make_ready(operation);
  if (operation.op.kind == plan::OpKind::load) return load(operation, stage);
  if (operation.op.kind == plan::OpKind::evict) return evict(operation, stage);
  if (!context_.trains()) return evaluate(operation, stage);
  switch (operation.op.kind) {
    case plan::OpKind::forward: forward(operation, stage); break;
    case plan::OpKind::recompute: recompute(operation, stage); break;
    case plan::OpKind::backward:
    case plan::OpKind::input_gradient: backward(operation, stage); break;
    case plan::OpKind::weight_gradient: weight_gradient(operation, stage); break;
    case plan::OpKind::all_reduce: all_reduce(operation, stage); break;
    case plan::OpKind::update: update(operation, stage); break;
    case plan::OpKind::tied_all_reduce:
    case plan::OpKind::load:
    case plan::OpKind::evict: break;  // above
  }
  note_bytes();
  log_->close();
}

void Worker::forward(const Operation& operation, Stage& stage) {
  const int pass = operation.op.micro_batch;
  model::Tensors inputs = receive_inputs(operation);
  const bool swapped = swapper_.has_value(), run_again = operation.run_again || operation.alone;
  const LossWeight weight = stage.segment().has_loss() ? loss_weight(operation) : LossWeight{};
  if (replica_) replica_->before_forward(stage);
  log_->begin(operation);
  context_.feed->fill(operation, inputs, memory_);
  const std::int64_t step = operation.step - context_.range.first;
  stage.predict_for_forward(step, rate(operation));
  model::Tensors outputs = stage.forward(pass, step, inputs, key(operation), generator_,
                                         run_again ? Keep::inputs : Keep::graphs, weight.label_shares);
  if (swapped && run_again) stash(operation, inputs);
  inputs.clear();
  if (stage.segment().has_loss()) log_->add_loss(stage.loss(pass), weight);
  log_->current().updates = operation.alone && !swapped;  // the stage does nothing else with it
  if (swapped ? run_again : operation.alone) stage.forget(pass);
  end_operation();
  send_outputs(operation, std::move(outputs));
}

// What the data provide is cut again, not kept.
void Worker::recompute(const Operation& operation, Stage& stage) {
  context_.feed->await(operation);
  std::vector<double> label_shares;
  if (stage.segment().has_loss()) label_shares = loss_weight(operation).label_shares;
  model::Tensors inputs =
      swapper_ ? unstash(operation) : model::Tensors(job_.wiring[index(operation.op.stage)].inputs.size());
  log_->begin(operation);
  context_.feed->fill(operation, inputs, memory_);
  stage.predict_for_backward(rate(operation));
  if (swapper_) {
    stage.forward(operation.op.micro_batch, operation.step - context_.range.first, inputs, key(operation),
                  generator_, Keep::graphs, std::move(label_shares));
  } else {
    stage.recompute(operation.op.micro_batch, inputs, key(operation), generator_, std::move(label_shares));
  }
  end_operation();
}

void Worker::backward(const Operation& operation, Stage& stage) {
  const int pass = operation.op.micro_batch;
  receive_gradients(operation);
  const double weight = stage.segment().has_loss() ? loss_weight(operation).share() * loss_scale_.factor : 1;
  log_->begin(operation);
  stage.predict_for_backward(rate(operation));
  model::Tensors gradients = operation.op.kind == plan::OpKind::backward
                                 ? stage.backward(pass, arrived_, weight, watches(operation, stage))
                                 : stage.input_gradient(pass, arrived_, weight);
  arrived_.clear();
  end_operation();
  send_gradients(operation, std::move(gradients));
}

void Worker::weight_gradient(const Operation& operation, Stage& stage) {
  log_->begin(operation);
  stage.predict_for_backward(rate(operation));
  stage.weight_gradient(operation.op.micro_batch, watches(operation, stage));
  end_operation();
}

void Worker::update(const Operation& operation, Stage& stage) {
  const bool meets = job_.options.clip_norm || job_.options.on_nan || job_.options.scales_losses();
  if (meets && std::exchange(settled_, operation.step) != operation.step) settle(operation.step);
  LoggedOp& op = log_->begin(operation);
  op.updates = true;
  const Time begin = Coordinator::Clock::now();
  op.gradient_norm = std::exchange(gradient_norm_, std::nullopt);
  op.not_finite = refused_;
  if (replica_) {
    replica_->update(stage, rate(operation));
  } else if (refused_.empty()) {
    stage.update(operation.step - context_.range.first, rate(operation));
    if (swapper_) unwritten_[operation.op.stage] = operation.step + 1;
  } else {
    stage.drop_update();
  }
  if (refused_.empty() && job_.shares_state(operation.op.stage)) {
    spread_weights(operation, stage, begin);
  } else {
    end_operation();
  }
  if (next_op_ != plan::Op{plan::OpKind::evict, operation.op.stage}) write_back(operation.op.stage, stage);
}

// What this replica copies counts as its work, waiting for the others does not.
void Worker::spread_weights(const Operation& operation, Stage& stage, Time begin) {
  Seconds elapsed = await_finish() - begin;
  if (const std::vector<Slice> slices = stage.weight_slices(); !slices.empty()) {
    const std::size_t group = job_.replica_group(operation.op.stage);
    elapsed += job_.collectives->spread(group, id_, stage.flat_weights(), slices);
  }
  const Time end = await_finish();
  log_->end(end - std::chrono::duration_cast<Coordinator::Clock::duration>(elapsed), end);
  note_peak();
}

// Replicas that take turns of steps share an update: its rate is that of the first one's step.
double Worker::rate(const Operation& operation) const {
  const Step since = operation.step - context_.range.first;
  const Step turns =
      job_.setup.round == 1 || replica_ ? 1 : std::ssize(job_.plan.stages[index(operation.op.stage)].workers);
  return rate_at(job_.setup.rates, job_.options.learning_rate, job_.setup.length.total,
                 operation.step - since % turns);
}

Worker::Time Worker::await_finish() const {
  profile::wait_for(device_);
  return Coordinator::Clock::now();
}

}  // namespace pp::run
