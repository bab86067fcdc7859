#include "librun/worker/worker.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <ranges>
#include <string>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/device/compute_device.h"
#include "libprofile/device/machine.h"
#include "libprofile/device/process.h"
#include "libprofile/model/errors.h"
#include "librun/worker/located.h"

namespace pp::run {

namespace {

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

std::unique_ptr<Action> make_action(const plan::Instruction& instruction, Shared& shared) {
  using enum plan::InstructionKind;
  switch (instruction.kind) {
    case receive:
    case feed:
    case send: return make_message(instruction, shared);
    case forward:
    case recompute:
    case backward:
    case input_gradient:
    case weight_gradient: return make_pass(instruction.kind, shared);
    case begin_reduce:
    case reduce:
    case tie:
    case judge: return make_reduction(instruction.kind, shared);
    case update:
    case spread:
    case fetch:
    case push: return make_update(instruction.kind, shared);
    case evaluate:
    case score:
    case hand_out: return make_evaluation(instruction.kind, shared);
    case ready:
    case load:
    case evict:
    case write_back:
    case stash:
    case unstash: break;
  }
  return make_swap(instruction, shared);
}

Worker::Worker(Job& job, WorkerId id)
    : state_(job, id),
      shared_{.state = state_, .verdict = {job.setup.start.position.loss_scale}, .sums = {}},
      initial_(job.initial),
      starting_(std::in_place, job.coordinator) {}

void Worker::run() noexcept {
  Coordinator& coordinator = state_.job.coordinator;
  try {
    try {
      const profile::ChargeMemory charged(state_.memory, state_.job.setup.devices[index(id())].kind);
      serve();
    } catch (const Stopped&) {
      return;  // another worker has the error
    } catch (...) {
      model::detail::rethrow_as_error();
    }
  } catch (const model::OutOfMemory& error) {
    model::OutOfMemory told(with_remedy(state_.job, id(), error.message()));
    if (error.contexts().empty()) told.add_context("worker " + std::to_string(number(id())));
    for (const std::string& place : std::views::reverse(error.contexts())) told.add_context(place);
    coordinator.stop(std::make_exception_ptr(told));
  } catch (...) {
    coordinator.stop(std::current_exception());
  }
}

void Worker::serve() {
  Job& job = state_.job;
  profile::pin_thread(job.setup.cores.cores[index(id())]);
  profile::enter_device(state_.device, job.setup.cores.threads[index(id())]);
  profile::take_library_memory(state_.device);
  make_stages();
  // All threads draw weights. From now on no bit may depend on how many a worker of a GPU has.
  if (state_.device.is_cuda()) profile::enter_worker_thread(/*threads=*/1);
  starting_.reset();
  OperationLog log(job, id(), state_.device, state_.record);
  DataFeed feed(job, id(), state_.device);
  state_.log = &log, state_.feed = &feed;
  while (true) {
    job.coordinator.announce(id(), std::nullopt);
    const Command command = job.commands.next(id());
    switch (command.kind) {
      case Command::Kind::train: train(command); break;
      case Command::Kind::evaluate:
      case Command::Kind::infer: evaluate(command); break;
      case Command::Kind::snapshot: snapshot(command); break;
      case Command::Kind::stop:
        if (shared_.serving) shared_.serving->close();
        return;
    }
  }
}

void Worker::make_stages() {
  const Job& job = state_.job;
  if (job.swapped) shared_.swapping = std::make_unique<Swapping>(state_);
  for (std::size_t s = 0; s < job.plan.stages.size(); ++s) {
    if (std::ranges::count(job.plan.stages[s].workers, id()) > 0)
      make_stage(StageId{static_cast<int>(s)}, initial_.get());
  }
  initial_.reset();
}

Worker::Actions Worker::actions_of(const plan::Stream& stream, Direction forwards) {
  Actions actions;
  for (const std::vector<plan::Instruction>& list : lower(stream, lowering_of(state_.job, forwards))) {
    Lowered& made = actions.emplace_back(Lowered{plan::parts_of(list), {}});
    for (const plan::Instruction& instruction : list) made.actions.push_back(make_action(instruction, shared_));
  }
  return actions;
}

StageOptions Worker::options_of(StageId id) const {
  const Job& job = state_.job;
  const std::size_t s = index(id);
  StageOptions options;
  options.layers = job.layers[s];
  options.with_loss = job.setup.model.graph.loss && s + 1 == job.plan.stages.size();
  options.recompute = job.recompute[s];
  options.dtype = job.plan.training.dtype;
  options.format = job.plan.training.memory_format;
  options.autocast = job.options.autocast;
  options.kernels = std::make_shared<const model::Kernels>(job.plan.training.kernels);
  options.device = state_.device;
  options.seed = job.options.seed;
  if (!job.inference) {
    options.optimizer = std::make_unique<model::Optimizer>(job.plan.training.optimizer, job.options.optimizer,
                                                           job.options.weight_decay);
    options.rules = job.options.rules;
    options.policy = job.plan.schedule.weight_policy;
    options.per_update = job.plan.training.micro_batches;
    options.master = job.plan.training.precision == plan::Precision::mixed;
    if (shares_state(job.plan, id)) {
      const std::vector<WorkerId>& replicas = job.plan.stages[s].workers;
      options.owners = replicas.size();
      options.owner = static_cast<std::size_t>(std::ranges::find(replicas, state_.id) - replicas.begin());
    }
    const auto& recorded = job.setup.recorded[index(state_.id)];
    if (recorded.contains(id)) options.recorded = {recorded.at(id), state_.memory};
  }
  options.stages = static_cast<int>(job.plan.stages.size());
  options.index = static_cast<int>(s);
  return options;
}

void Worker::make_stage(StageId id, const InitialState* initial) {
  Job& job = state_.job;
  StageOptions options = options_of(id);
  if (initial) options.given = &initial->tensors;
  const auto where = [&] {
    return "worker " + std::to_string(number(state_.id)) + ": stage " + std::to_string(number(id)) +
           ": its weights";
  };
  std::optional<profile::ChargeMemory> on_host;  // until it is adopted
  if (shared_.swapping) on_host.emplace(shared_.swapping->host());
  model::detail::guarded(where, [&] {
    Stage& stage = state_.stages.try_emplace(id, job.setup.model, std::move(options)).first->second;
    if (initial) stage.restore(initial->tensors, initial->optimizer);
    if (job.served()) shared_.serving = std::make_unique<Serving>(state_, stage);
    if (shared_.swapping) shared_.swapping->adopt(id, stage);
  });
}

void Worker::train(const Command& command) {
  Job& job = state_.job;
  const EpochShape& epoch = job.setup.length.epoch;
  state_.direction = Direction::activation;
  state_.owners = &job.owners;
  state_.range = command.range;
  state_.epoch = command.epoch;
  for (auto& [id, stage] : state_.stages) stage.restart();
  state_.memory.reset_peak();
  if (shared_.swapping) shared_.swapping->count(true);
  const plan::Stream& stream = job.streams[index(id())];
  if (training_.empty()) training_ = actions_of(stream, Direction::activation);
  const Cursor cursor(stream, !job.setup.streams, epoch, command.range);
  const auto order = [&] {
    return epoch_order(epoch.samples, job.options.seed, command.epoch,
                       job.options.shuffle && !job.setup.clocked);
  };
  state_.feed->begin(*job.training, command.epoch, order, cursor);
  state_.log->begin_range();
  walk(cursor, training_);
  if (job.numbering.gradient_lag > 0) drop_late_gradients(state_);
  if (shared_.serving) shared_.serving->leave();
  state_.trained = job.commands.end_of_range(id());
  state_.log->end_range(state_.trained - command.range.first);
  WorkerRecord& record = state_.record;
  record.peak = std::max(record.peak, state_.memory.peak());
  record.graphs = {};
  for (const auto& [id, stage] : state_.stages) record.graphs += stage.recorded();
  if (shared_.swapping) shared_.swapping->count(false);
}

void Worker::evaluate(const Command& command) {
  Job& job = state_.job;
  state_.direction = Direction::evaluation;
  state_.owners = &job.forward_owners;
  state_.range = command.range;
  state_.epoch = command.epoch;
  const plan::Stream& stream = job.forward_streams[index(id())];
  if (forwards_.empty()) forwards_ = actions_of(stream, Direction::evaluation);
  const Cursor cursor(stream, /*of_step=*/false, job.test_shape, command.range);
  const auto order = [&] {
    return epoch_order(job.test->samples(), /*seed=*/0, /*epoch=*/0, /*shuffle=*/false);
  };
  state_.feed->begin(*job.test, command.epoch, order, cursor);
  if (job.inference) {
    state_.memory.reset_peak();
    state_.record.busy.emplace_back(0);
  }
  walk(cursor, forwards_);
  job.ledger.evaluated();
}

// The copies are charged to no worker: they are on their way to a file.
void Worker::snapshot(const Command& command) {
  Job& job = state_.job;
  Swapping* const swapping = shared_.swapping.get();
  job.checkpointer->begin(id(), command.step, command.last);
  const WorkerState::Time begin = Coordinator::Clock::now();
  const profile::ChargeMemory charged{profile::MemoryAccount()};
  std::vector<Stage::LayerState> layers;
  for (auto& [id, stage] : state_.stages) {
    const bool mine = swapping ? swapping->hands_in(id) : state_.is_first(id);
    if (mine || shares_state(job.plan, id))
      std::ranges::move(swapping ? swapping->snapshot(id, stage) : stage.snapshot(),
                        std::back_inserter(layers));
  }
  job.checkpointer->add(command.step, command.last, std::move(layers), state_.await_finish() - begin);
}

void Worker::walk(Cursor cursor, const Actions& actions) {
  Job& job = state_.job;
  const bool by_step = state_.trains() && !job.setup.streams;
  Step admitted = state_.range.first;  // steps below it may run
  bool in_step = false;
  const auto leave_step = [&] {
    if (std::exchange(in_step, false) && by_step) job.coordinator.announce(state_.id, std::nullopt);
  };
  const auto prepare = [&](Operation& operation) {
    if (job.inference) job.inference->locate(operation);
    for (const auto& action : actions[operation.place].actions) action->prepare(operation);
  };
  bool prepared = false;
  std::optional<Operation> next;
  for (std::optional<Operation> operation = cursor.next(); operation; operation = next) {
    if (operation->step >= admitted) {
      leave_step();
      if (!job.commands.admit(state_.id, operation->step)) {
        cursor.end_at(job.commands.end_of_range(state_.id));
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
    execute(*operation, actions);
  }
  leave_step();
}

void Worker::execute(const Operation& operation, const Actions& actions) {
  Job& job = state_.job;
  located(id(), operation.op, [&] {
    job.coordinator.announce(id(), operation.op);
    if (job.options.before_op) job.options.before_op(state_.trains() ? operation.step : -1, id(), operation.op);
    const Lowered& lowered = actions[operation.place];
    turn_.start(operation, lowered.parts);
    for (const auto& action : lowered.actions) action->run(turn_);
    turn_.finish();
    if (!state_.trains() || !turn_.begun()) return;
    state_.note_bytes();
    state_.log->close();
  });
}

}  // namespace pp::run
