// A job without a training: its ways are joined and exercised, and what they took of each device is measured.
#include "librun/warm.h"

#include <ATen/ops/full.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "libplan/cost/links.h"
#include "libplan/price/predict.h"
#include "libprofile/core/error.h"
#include "libprofile/device/block_cache.h"
#include "libprofile/device/compute_device.h"
#include "libprofile/device/cuda_devices.h"
#include "libprofile/device/machine.h"
#include "libprofile/model/errors.h"
#include "libprofile/model/ops.h"
#include "librun/drive/agreement.h"
#include "librun/drive/exercises.h"
#include "librun/drive/rank_link.h"
#include "librun/setup/checks.h"
#include "librun/setup/make_setup.h"
#include "librun/stage/flat_layout.h"
#include "librun/threads/watchdog.h"
#include "librun/worker/job.h"

namespace pp::run {

namespace {

/// Neither weights nor data are read. Samples that a model is given by itself are as few as make a step.
RunOptions without_training(RunOptions options, const plan::Plan& plan) {
  options.initial_weights.clear();
  options.resume.clear();
  options.random_weights = true;
  if (!options.epochs && !options.steps) options.epochs = 1;
  if (!options.data.empty()) return as_planned(std::move(options), plan);
  std::int64_t rounds = std::max(1, options.accumulate);
  for (const plan::Stage& stage : plan.stages)
    rounds = std::lcm(rounds, std::max<std::int64_t>(1, std::ssize(stage.workers)));
  options.data = "synthetic";
  options.synthetic_samples =
      static_cast<int>(std::min<std::int64_t>(rounds * plan.training.mini_batch, 1 << 20));
  options.steps = std::max<std::int64_t>(options.steps.value_or(rounds), options.warmup_steps + rounds);
  options.epochs.reset();
  return as_planned(std::move(options), plan);
}

/// The kinds of instructions that any worker has for a stage, or for an entry of Plan::tied.
class Instructions {
 public:
  explicit Instructions(const Job& job) {
    for (const plan::Stream& stream : job.streams) {
      const plan::InstructionLists lists = lower(stream, lowering_of(job, Direction::activation));
      auto list = lists.begin();
      for (const plan::Program* part : {&stream.prologue, &stream.body}) {
        for (const plan::Op& op : *part) {
          const bool tied = op.kind == plan::OpKind::tied_all_reduce;
          for (const plan::Instruction& one : *list++)
            of_.emplace(one.kind, tied ? op.micro_batch : pp::number(op.stage));
        }
      }
    }
  }
  bool any(plan::InstructionKind kind) const {
    return std::ranges::any_of(of_, [&](const auto& one) { return one.first == kind; });
  }
  bool has(plan::InstructionKind kind, std::size_t number) const {
    return of_.contains({kind, static_cast<int>(number)});
  }

 private:
  std::set<std::pair<plan::InstructionKind, int>> of_;
};

/// What the plan's program exchanges, with what its links promise, in one order for all workers.
class Exercises {
 public:
  explicit Exercises(const Job& job) : job_(job), cluster_(plan::cluster_of(job.plan)), instructions_(job) {
    for (std::size_t c = 0; c < job.channels.list().size(); ++c) add_message(c);
    for (std::size_t s = 0; s < job.plan.stages.size(); ++s) add_sum(s);
    for (std::size_t t = 0; t < job.plan.tied.size(); ++t) add_tied(t);
  }

  std::vector<Exercise> take() && { return std::move(all_); }

 private:
  int position(WorkerId worker) const {
    const DeviceId device = job_.plan.workers[index(worker)].device;
    const auto found = std::ranges::find(cluster_.devices, device, &Device::id);
    return static_cast<int>(found - cluster_.devices.begin());
  }
  std::vector<int> positions(const Group& workers) const {
    std::vector<int> all;
    for (const WorkerId worker : workers) all.push_back(position(worker));
    return all;
  }
  const std::string& layer(int number) const {
    return job_.plan.model.layers[static_cast<std::size_t>(number)].name;
  }
  static std::int64_t bytes_of(const Exercise& one) {
    const std::int64_t count =
        std::accumulate(one.sizes.begin(), one.sizes.end(), std::int64_t{1}, std::multiplies<>());
    return count * static_cast<std::int64_t>(c10::elementSize(one.type));
  }

  /// Evaluations send over ways of their own only where no training does.
  void add_message(std::size_t number) {
    const Channel& channel = job_.channels.list()[number];
    if (channel.from == channel.to) return;
    const bool forwards = channel.direction != Direction::gradient;
    if (!sent_.emplace(channel.from, channel.to, channel.layer, channel.output, forwards, channel.consumer)
             .second)
      return;
    Exercise one{.kind = Exercise::Kind::message, .number = number, .sizes = {rows()}};
    one.sizes.insert(one.sizes.end(), channel.shape.begin(), channel.shape.end());
    if (channel.dtype) {
      one.type = model::scalar_type(*channel.dtype);
    } else if (job_.options.autocast) {
      one.type = *job_.options.autocast == Autocast::float16 ? at::kHalf : at::kBFloat16;
    }
    one.exchange = {.workers = {channel.from, channel.to},
                    .what = (forwards ? "activation of " : "gradient of ") + layer(channel.layer),
                    .bytes = Bytes(bytes_of(one))};
    const Link link = plan::link_between(cluster_, position(channel.from), position(channel.to));
    one.exchange.promised = Seconds(transfer_time(static_cast<double>(one.exchange.bytes.value), 1, link));
    all_.push_back(std::move(one));
  }

  std::int64_t rows() const {
    return plan::micro_batch_sizes(job_.plan.training.mini_batch, job_.plan.training.micro_batches).front();
  }

  void add_sum(std::size_t stage) {
    const Group& workers = job_.plan.stages[stage].workers;
    const StageId id{static_cast<int>(stage)};
    if (workers.size() < 2 || !instructions_.has(plan::InstructionKind::reduce, stage)) return;
    const std::vector<model::Segment> segments = make_segments(job_.plan, job_.setup.model);
    const Device& device = job_.setup.devices[index(workers.front())];
    const plan::Training& training = job_.plan.training;
    const FlatLayout layout(job_.setup.model, segments[stage], training.dtype,
                            profile::tensor_device(device.kind, device.index));
    if (layout.gradient_size() == 0) return;
    const at::ScalarType weights = model::scalar_type(training.dtype);
    const bool master = training.precision == plan::Precision::mixed;
    Exercise one{.kind = Exercise::Kind::sum,
                 .number = job_.replica_group(id),
                 .sizes = {layout.gradient_size()},
                 .type = master ? at::kFloat : weights,
                 .weights = weights};
    one.exchange = {.workers = workers,
                    .what = "sum of gradients of stage " + std::to_string(stage),
                    .bytes = Bytes(bytes_of(one))};
    plan::Reduction reduction{.gradients = static_cast<double>(one.exchange.bytes.value)};
    if (shares_state(job_.plan, id)) {
      one.kind = Exercise::Kind::shares;
      one.exchange.what = "shares of gradients and weights of stage " + std::to_string(stage);
      const auto parts = layout.parts(workers.size());
      for (std::size_t owner = 0; owner < parts.size(); ++owner)
        for (const FlatLayout::Piece& piece : parts[owner])
          one.slices.push_back({owner, piece.offset, piece.offset + piece.length});
      reduction.sharded = true;
      reduction.weights =
          static_cast<double>(layout.weight_size()) * static_cast<double>(c10::elementSize(weights));
    }
    one.exchange.promised = plan::all_reduce_time(cluster_, positions(workers), reduction);
    all_.push_back(std::move(one));
  }

  void add_tied(std::size_t tied) {
    if (!instructions_.has(plan::InstructionKind::tie, tied)) return;
    std::set<WorkerId> workers;
    for (const StageId stage : job_.plan.tied[tied].stages) {
      const std::vector<WorkerId>& of = job_.plan.stages[index(stage)].workers;
      workers.insert(of.begin(), of.end());
    }
    const auto owner = static_cast<std::size_t>(job_.tied_owner(tied));
    const ResolvedLayer& resolved = job_.setup.model.layers[owner];
    std::int64_t elements = 0;
    for (const ParameterSpec& parameter : resolved.parameters) elements += element_count(parameter.shape);
    Exercise one{.kind = Exercise::Kind::gather,
                 .number = job_.tied_group(tied),
                 .sizes = {elements},
                 .type = model::scalar_type(job_.plan.training.dtype)};
    one.exchange = {.workers = {workers.begin(), workers.end()},
                    .what = "gradients of shared " + job_.plan.tied[tied].parameter,
                    .bytes = Bytes(bytes_of(one))};
    one.exchange.promised =
        plan::all_reduce_time(cluster_, positions(one.exchange.workers), one.exchange.bytes);
    all_.push_back(std::move(one));
  }

  const Job& job_;
  const Cluster cluster_;
  const Instructions instructions_;
  std::set<std::tuple<WorkerId, WorkerId, int, int, bool, StageId>> sent_;
  std::vector<Exercise> all_;
};

std::vector<std::string> left_out(const Job& job) {
  using enum plan::InstructionKind;
  const Instructions instructions(job);
  std::vector<std::string> all;
  if (instructions.any(fetch) || instructions.any(push))
    all.emplace_back("what replicas fetch from the parameter server and push to it");
  if (instructions.any(load) || instructions.any(evict))
    all.emplace_back("weights that move between host and device");
  return all;
}

/// What communicators take of the devices of this process's workers.
class MemoryTaken {
 public:
  MemoryTaken(const Job& job, Bytes joining) : job_(job), joining_(joining) {
    for (const WorkerId worker : job.workers_here()) ++sharers_[device(worker)];
    for (const auto& [device, sharers] : sharers_) before_[device] = used(device);
  }

  /// Of a worker, an equal share of what its device's workers here have together.
  Bytes share(WorkerId worker) const {
    const int on = device(worker);
    const Bytes all = used(on) - before_.at(on) + (on == kHost ? joining_ : Bytes(0));
    return Bytes(std::max<std::int64_t>(0, all.value) / sharers_.at(on));
  }

 private:
  static constexpr int kHost = -1;  // in the place of a GPU's number

  int device(WorkerId worker) const {
    const Device& device = job_.setup.devices[index(worker)];
    return device.kind == DeviceKind::cuda ? device.index : kHost;
  }
  /// Without what LibTorch's allocator holds for tensors. On a GPU up to a constant.
  static Bytes used(int device) {
    if (device == kHost) return profile::process_memory();
    return Bytes(0) - profile::cuda_device_memory(device) - profile::cuda_allocator_peak(device).reserved;
  }

  const Job& job_;
  const Bytes joining_;
  std::map<int, int> sharers_;
  std::map<int, Bytes> before_;
};

class Warming {
 public:
  Warming(const plan::Plan& plan, const RunOptions& options, Setup setup, Bytes joining, Mailbox* mailbox)
      : job_(plan, options, std::move(setup)), exercises_(Exercises(job_).take()) {
    const std::vector<WorkerId> here = job_.workers_here();
    std::vector<at::Device> devices;
    for (const WorkerId worker : here) devices.push_back(device_of(worker));
    profile::open_devices(devices);
    taken_.emplace(job_, joining);
    if (mailbox) {
      job_.connect(*mailbox);
      link_.emplace(job_, *mailbox);
    }
    try {
      for (const WorkerId worker : here) threads_.add([this, worker] { serve(worker); });
    } catch (...) {
      job_.coordinator.stop(std::current_exception());
      throw;
    }
  }
  ~Warming() {
    job_.coordinator.stop(nullptr);
    threads_.join();
  }
  Warming(const Warming&) = delete;
  Warming& operator=(const Warming&) = delete;

  /// The report is whole on each process. Throws the first error of any worker.
  WarmReport run() {
    const bool leads = !link_ || link_->leads();
    const Watchdog watchdog(job_.coordinator, job_.options.stall_timeout * (leads ? 1 : 1.5));
    threads_.join();
    try {
      if (job_.coordinator.stopped()) throw Stopped{};
      if (link_ && leads) link_->await_others();
      if (link_ && !leads) link_->leave({});
    } catch (const Stopped&) {
      std::rethrow_exception(job_.coordinator.error());
    }
    return report();
  }

 private:
  at::Device device_of(WorkerId worker) const {
    const Device& device = job_.setup.devices[index(worker)];
    return profile::tensor_device(device.kind, device.index);
  }

  void serve(WorkerId me) noexcept {
    try {
      try {
        profile::pin_thread(job_.setup.cores.cores[index(me)]);
        profile::enter_device(device_of(me), job_.setup.cores.threads[index(me)]);
        try_all(me);
      } catch (const Stopped&) {
        return;  // another worker has the error
      } catch (...) {
        model::detail::rethrow_as_error();
      }
    } catch (...) {
      job_.coordinator.stop(std::current_exception());
    }
  }

  void try_all(WorkerId me) {
    const auto common = [this](Coordinator::Clock::time_point time) {
      return job_.setup.clock ? job_.setup.clock->there(time) : time;
    };
    const Ways ways{job_.coordinator,     *job_.transport,  *job_.collectives,
                    job_.channels.list(), job_.everybody(), common};
    const at::Tensor times = exercise(ways, me, device_of(me), exercises_);
    const bool first = me == job_.workers_here().front();
    // No memory of a communicator: the last message of each channel, and what was taken for those before.
    meet(ways, me);
    if (first) job_.transport.reset();
    meet(ways, me);
    profile::thread_block_cache().release_free_blocks();
    meet(ways, me);
    const at::Tensor taken = at::full({1}, taken_->share(me).value, at::kLong);
    job_.collectives->gather(ways.everybody, me, {times, taken}, [&](const Collectives::Parts& parts) {
      if (!first) return;
      for (const std::vector<at::Tensor>& part : parts) {
        times_.push_back(part[0].clone());
        bytes_.emplace_back(part[1].item<std::int64_t>());
      }
    });
  }

  WarmReport report() {
    WarmReport report{.ranks = job_.setup.placement.ranks, .left_out = left_out(job_)};
    set_measured(exercises_, job_.channels.list(), times_);
    for (Exercise& one : exercises_) {
      const bool message = one.kind == Exercise::Kind::message;
      (message ? report.messages : report.sums).push_back(std::move(one.exchange));
    }
    std::map<DeviceId, std::size_t> places;
    for (const plan::Worker& worker : job_.plan.workers) {
      const Device& device = plan::device_of(job_.plan, worker.id);
      const auto [place, added] = places.emplace(worker.device, report.devices.size());
      if (added)
        report.devices.push_back({.name = device_name(job_.plan.devices, device), .memory = device.memory});
      WarmDevice& one = report.devices[place->second];
      one.workers.push_back(worker.id);
      one.taken += bytes_[index(worker.id)];
      if (index(worker.id) < job_.plan.predicted.workers.size())
        one.peak += job_.plan.predicted.workers[index(worker.id)].memory.peak;
    }
    return report;
  }

  Job job_;
  std::vector<Exercise> exercises_;
  std::optional<MemoryTaken> taken_;
  std::vector<at::Tensor> times_;  ///< by worker; as bytes_ written by the first one here
  std::vector<Bytes> bytes_;
  std::optional<RankLink> link_;
  Threads threads_;
};

void add_warnings(WarmReport& report, const Setup& setup) {
  report.warnings = setup.start.warnings;
  report.warnings.insert(report.warnings.begin(), setup.cores.warnings.begin(), setup.cores.warnings.end());
}

}  // namespace

WarmReport warm(const plan::Plan& plan, const RunOptions& given) {
  const RunOptions options = without_training(given, plan);
  const Setup setup = make_setup(plan, options);
  WarmReport report = Warming(plan, options, setup, Bytes(0), nullptr).run();
  add_warnings(report, setup);
  if (std::string missing = missing_ranks(plan); !missing.empty())
    report.warnings.push_back(std::move(missing));
  return report;
}

WarmReport warm_together(Peers& peers, const plan::Plan& plan, const RunOptions& given, Bytes joining) {
  if (peers.size() == 1) return warm(plan, given);
  const RunOptions options = without_training(given, plan);
  Mailbox mailbox(peers, 10 * options.stall_timeout);
  const Setup setup = set_up(mailbox, plan, options);
  return as_rank(peers.rank(), [&] {
    std::optional<Warming> warming;
    begin(mailbox, [&] { warming.emplace(plan, options, setup, joining, &mailbox); });
    WarmReport report = warming->run();
    add_warnings(report, setup);
    return report;
  });
}

}  // namespace pp::run
