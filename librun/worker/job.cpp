#include "librun/worker/job.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "libplan/schedule/versions.h"
#include "libprofile/core/ops/op_table.h"
#include "libprofile/device/compute_device.h"
#include "librun/data/model_data.h"
#include "librun/data/synthetic.h"
#include "librun/swap/residency.h"
#include "librun/transport/backends.h"
#include "librun/transport/direct_ways.h"
#include "librun/transport/rank_transport.h"

namespace pp::run {

namespace {

std::unique_ptr<const Dataset> load(const Setup& setup, const plan::Plan& plan, const RunOptions& options,
                                    Subset subset) {
  const bool training = subset == Subset::training;
  if (!training && setup.test_samples == 0) return nullptr;
  const DType dtype = plan.training.dtype;
  if (setup.files) {
    const SampleTable& table = training ? setup.files->training : *setup.files->test;
    return open_records(setup.model, table, {dtype, options.scale});
  }
  const std::int64_t samples = training ? options.synthetic_samples : setup.test_samples;
  return std::make_unique<MemoryDataset>(
      make_synthetic(setup.model, samples, options.seed, subset, dtype, options.synthetic_drift));
}

std::optional<model::LabelCount> find_label_count(const ResolvedModel& model) {
  std::optional<CountedLabels> counted = counted_labels(model);
  if (!counted) return std::nullopt;
  return model::LabelCount(*std::move(counted));
}

std::optional<model::RightAnswers> find_right_answers(const ResolvedModel& model) {
  std::optional<Answers> answers = answers_of(model);
  if (!answers) return std::nullopt;
  return model::RightAnswers(*std::move(answers));
}

// Whether labels may count differently: what a graph makes of them may be anything; of those in files, which
// have been checked, what is no class is ignored.
bool may_differ(const Setup& setup) {
  const CountedLabels counted = *counted_labels(setup.model);
  if (setup.model.graph.loss->op == kGraphOp) return true;
  const std::int64_t classes = class_count(setup.model);
  const std::int64_t ignored = counted.means.front().ignored;
  if (ignored >= 0 && ignored < classes) return true;
  if (!setup.files) return false;
  const TensorSource& labels = counted.made.sources.front();
  const SampleTable& table = setup.files->training;
  const auto& columns = labels.kind == TensorSource::Kind::target ? table.targets : table.inputs;
  return find_out_of_range(columns[static_cast<std::size_t>(labels.index)], classes).has_value();
}

EpochShape shape_of_test(const Setup& setup, const plan::Plan& plan) {
  EpochShape shape{.samples = setup.test_samples,
                   .mini_batch = std::max(1, plan.training.mini_batch / plan.training.micro_batches)};
  shape.count = (shape.samples + shape.mini_batch - 1) / shape.mini_batch;
  return shape;
}

bool is_served(const plan::Plan& plan) { return plan::is_served(plan.schedule.weight_policy); }

// Between ranks at most; the ledger has room for the losses of that many steps.
Step lead_of_ranks(std::int64_t micro_batches) {
  constexpr Step kMostSteps = 64, kMostLosses = 1 << 20;
  return std::clamp(kMostLosses / micro_batches, Step{2}, kMostSteps);
}

// Twice what the driver may be late: it is woken when half of it is done. In streams enough to fill all windows
// twice, or for what replicas may be apart.
Step find_lead(const plan::Plan& plan, const Setup& setup, std::span<const plan::Stream> streams) {
  if (!setup.streams) {
    const std::int64_t micro_batches =
        std::int64_t{plan.training.micro_batches} * setup.length.epoch.accumulate;
    return setup.placement.alone() ? 8 : lead_of_ranks(micro_batches);
  }
  if (setup.clocked) return std::ssize(streams);  // a frame enters when the last stage has done with one
  if (is_served(plan)) return (setup.clock_bound + 2) * std::ssize(streams);
  Step windows = 0;
  for (const plan::Stream& stream : streams) windows += std::ssize(stream.prologue) + 1;
  return 2 * windows;
}

// Updates of a step: each worker of a stage has one a round, in streams after its own mini-batches.
int count_updates(std::span<const plan::Stream> streams, int micro_batches) {
  double updates = 0;
  for (const plan::Stream& stream : streams) {
    const auto in_round = std::ranges::count(stream.body, plan::OpKind::update, &plan::Op::kind);
    updates += static_cast<double>(in_round) * micro_batches / stream.period;
  }
  return static_cast<int>(std::lround(updates));
}

ChannelOptions number_messages(const plan::Plan& plan, const RunOptions& options, const Setup& setup,
                               const EpochShape& test) {
  return {.autocast = options.autocast.has_value(),
          .step_micro_batches = std::int64_t{plan.training.micro_batches} * setup.length.epoch.accumulate,
          .evaluation_micro_batches = std::max<std::int64_t>(1, test.count),
          .gradient_lag = setup.clocked ? 2 : 0,
          .swapped = swaps(plan)};
}

Commands::Readers readers(const plan::Plan& plan, const Placement& placement) {
  Commands::Readers readers{.alone = placement.alone()};
  for (const plan::Worker& worker : plan.workers) {
    if (placement.here(worker.id)) readers.here.push_back(worker.id);
  }
  return readers;
}

std::unique_ptr<Transport> make_transport(Coordinator& coordinator, const Channels& channels,
                                          const Setup& setup, const RunOptions& options) {
  if (setup.placement.alone()) return make_in_process_transport(coordinator, channels.list());
  RankTensors tensors;
  if (options.autocast) tensors.autocast = options.autocast == Autocast::float16 ? at::kHalf : at::kBFloat16;
  for (std::size_t w = 0; w < setup.devices.size(); ++w) {
    const bool here = setup.placement.here(WorkerId{static_cast<int>(w)});
    tensors.pinned |= here && setup.devices[w].kind == DeviceKind::cuda;
  }
  return make_rank_transport(coordinator, channels.list(), setup.placement, *setup.peers, tensors);
}

// Replicas of each stage first.
std::vector<Group> groups_of(const plan::Plan& plan) {
  std::vector<Group> groups;
  for (const plan::Stage& stage : plan.stages) groups.push_back(stage.workers);
  for (const plan::TiedParameter& tied : plan.tied) {
    std::set<WorkerId> workers;
    for (const StageId stage : tied.stages)
      workers.insert(plan.stages[index(stage)].workers.begin(), plan.stages[index(stage)].workers.end());
    groups.emplace_back(workers.begin(), workers.end());
  }
  groups.emplace_back();
  for (const plan::Worker& worker : plan.workers) groups.back().push_back(worker.id);
  return groups;
}

std::unique_ptr<Collectives> make_collectives(Coordinator& coordinator, const plan::Plan& plan,
                                              const Setup& setup) {
  if (setup.placement.alone()) return make_in_process_collectives(coordinator, groups_of(plan));
  return make_rank_collectives(coordinator, groups_of(plan), setup.placement, *setup.peers, /*fast=*/0);
}

std::unique_ptr<ParameterServer> make_server(Coordinator& coordinator, const plan::Plan& plan,
                                             const RunOptions& options, const Setup& setup) {
  if (!is_served(plan) || !setup.placement.here(plan.stages.front().workers.front())) return nullptr;
  return std::make_unique<ParameterServer>(coordinator, ServerOptions{.policy = plan.schedule.weight_policy,
                                                                      .replicas = plan.stages.front().workers,
                                                                      .bound = setup.clock_bound,
                                                                      .interleaving = options.interleave,
                                                                      .first_step = setup.start.position.step});
}

std::unique_ptr<RequestServer> make_request_server(Coordinator& coordinator, ParameterServer* server,
                                                   const plan::Plan& plan, const Setup& setup) {
  if (!server || setup.placement.alone()) return nullptr;
  const std::vector<WorkerId>& replicas = plan.stages.front().workers;
  std::vector<RemoteReplica> remotes;
  for (std::size_t r = 0; r < replicas.size(); ++r) {
    if (!setup.placement.here(replicas[r]))
      remotes.push_back({static_cast<int>(r), setup.placement.of(replicas[r])});
  }
  return std::make_unique<RequestServer>(coordinator, *server, *setup.peers, remotes);
}

/// What has been read of the files goes with it.
std::shared_ptr<const InitialState> open_initial(Start& start) {
  const ReadFiles read = std::exchange(start.read, {});
  if (start.weights.empty()) return nullptr;
  return std::make_shared<InitialState>(StoredTensors(SafetensorsFile(start.weights, read)),
                                        StoredTensors(SafetensorsFile(start.optimizer, read)));
}

}  // namespace

Job::Job(plan::Plan the_plan, RunOptions the_options, Setup the_setup, std::optional<ForwardOnly> forward_only,
         std::unique_ptr<SavedFiles> files)
    : plan(std::move(the_plan)),
      options(std::move(the_options)),
      initial(open_initial(the_setup.start)),
      setup(std::move(the_setup)),
      swapped(!forward_only && swaps(plan)),
      label_count(find_label_count(setup.model)),
      right_answers(find_right_answers(setup.model)),
      counts_labels(!forward_only && label_count && may_differ(setup)),
      training(forward_only ? nullptr : load(setup, plan, options, Subset::training)),
      test(forward_only ? std::move(forward_only->data) : load(setup, plan, options, Subset::test)),
      inference(forward_only ? std::move(forward_only->inference) : nullptr),
      layers(stage_layers(plan)),
      recompute(recomputed_layers(plan)),
      wiring(wire(make_segments(plan, setup.model))),
      streams(training_streams(plan)),
      forward_streams(swapped ? swapped_forward_streams(plan) : run::forward_streams(plan)),
      lead(find_lead(plan, setup, streams)),
      owners(streams, static_cast<int>(plan.stages.size())),
      backward_owners(swapped ? Owners(streams, static_cast<int>(plan.stages.size()), Owners::Of::backwards)
                              : owners),
      forward_owners(forward_streams, static_cast<int>(plan.stages.size())),
      test_shape(forward_only ? forward_only->shape : shape_of_test(setup, plan)),
      numbering(number_messages(plan, options, setup, test_shape)),
      channels(plan, setup.model, wiring, inference ? forward_streams : streams, forward_streams, numbering),
      coordinator(static_cast<int>(plan.workers.size())),
      commands(coordinator, setup.round, readers(plan, setup.placement)),
      ledger(coordinator, {.micro_batches = static_cast<int>(numbering.step_micro_batches),
                           .updates = count_updates(streams, plan.training.micro_batches),
                           .evaluations = static_cast<int>(test_shape.count),
                           .steps = lead + setup.round}),
      passes(coordinator, static_cast<int>(plan.stages.size())),
      transport(make_transport(coordinator, channels, setup, options)),
      collectives(make_collectives(coordinator, plan, setup)),
      host(swapped ? std::make_unique<HostStore>(coordinator, plan) : nullptr),
      server(inference ? nullptr : make_server(coordinator, plan, options, setup)),
      start(Coordinator::Clock::now()),
      request_server(make_request_server(coordinator, server.get(), plan, setup)) {
  if (files && !(options.checkpoint.empty() && options.save_weights.empty()))
    checkpointer = std::make_unique<Checkpointer>(coordinator, plan, options, setup, workers_here().size(),
                                                  std::move(files));
}

bool Job::served() const { return !inference && is_served(plan); }

bool hides_sums(const Job& job, StageId stage) {
  return job.plan.predicted.all_reduce_overlap > 0 && job.collectives->overlaps(job.replica_group(stage));
}

plan::Lowering lowering_of(const Job& job, Direction forwards) {
  plan::Lowering lowering{.ports = job.channels.all_ports(),
                          .forwards = forwards,
                          .gradient_lag = job.numbering.gradient_lag,
                          .inference = job.inference != nullptr,
                          .swapped = job.swapped,
                          .served = job.served(),
                          .judged = job.options.clip_norm || job.options.on_nan || job.options.scales_losses()};
  const std::size_t stages = job.plan.stages.size();
  if (job.setup.model.graph.loss) lowering.scores = StageId{static_cast<int>(stages) - 1};
  for (std::size_t s = 0; s < stages; ++s) {
    const StageId id{static_cast<int>(s)};
    lowering.reads_data.push_back(
        std::ranges::any_of(job.wiring[s].inputs, [](const StageInput& input) { return input.producer < 0; }));
    lowering.shares_state.push_back(shares_state(job.plan, id));
    lowering.hides_sums.push_back(hides_sums(job, id));
  }
  return lowering;
}

void Job::connect(Mailbox& mailbox) {
  if (options.all_reduce == AllReduce::fast) {
    // The library makes groups only together: a rank that has failed by now says so here.
    gather_everywhere(mailbox, {});
    collectives = make_rank_collectives(coordinator, groups_of(plan), setup.placement, *setup.peers,
                                        /*fast=*/plan.stages.size());
  }
  if (std::ranges::none_of(plan.devices, [](const Device& d) { return d.kind == DeviceKind::cuda; })) return;
  const auto device_of = [&](WorkerId worker) {
    const Device& device = setup.devices[index(worker)];
    return profile::tensor_device(device.kind, device.index);
  };
  std::vector<std::string> identity(plan.workers.size());
  for (const WorkerId worker : workers_here()) {
    if (!nccl_library().empty()) identity[index(worker)] = profile::device_identity(device_of(worker));
  }
  const DeviceGroupMaker maker{make_group_key, [&](const std::string& key, int me, int size, WorkerId worker) {
                                 return join_device_group(key, me, size, device_of(worker));
                               }};
  std::vector<Group> replicas;
  for (const plan::Stage& stage : plan.stages) replicas.push_back(stage.workers);
  DirectWays ways = find_direct_ways(mailbox, setup.placement, channels.list(), replicas, identity, maker,
                                     options.stall_timeout);
  ways.collectives.resize(groups_of(plan).size());
  direct_ways = std::move(ways.all);
  if (direct_ways.empty()) return;
  transport =
      make_direct_transport(coordinator, std::move(transport), channels.list(), std::move(ways.channels));
  collectives = make_direct_collectives(std::move(collectives), std::move(ways.collectives),
                                        options.all_reduce == AllReduce::fast);
}

void Job::check_devices() {
  for (const auto& way : direct_ways) {
    if (coordinator.stopped()) return;
    if (const std::string why = way->failure(); !why.empty())
      coordinator.stop(std::make_exception_ptr(Error(ErrorKind::run, "between GPUs: " + why)));
  }
}

void Job::give_up_devices() {
  for (const auto& way : direct_ways) way->abort();
}

std::vector<WorkerId> Job::workers_here() const { return readers(plan, setup.placement).here; }

int Job::updates_together() const {
  if (setup.streams) return 1;
  std::vector<plan::Stream> here;
  for (const WorkerId worker : workers_here()) here.push_back(streams[index(worker)]);
  return count_updates(here, plan.training.micro_batches);
}

int Job::tied_owner(std::size_t tied) const {
  const std::string& user = plan.tied[tied].layers.front();
  const auto found = std::ranges::find(plan.model.layers, user, &Layer::name);
  return setup.model.layers[static_cast<std::size_t>(found - plan.model.layers.begin())].weights_layer;
}

}  // namespace pp::run
