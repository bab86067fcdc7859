#include "librun/worker/job.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "librun/data/synthetic.h"

namespace pp::run {

namespace {

Dataset load(const Setup& setup, const plan::Plan& plan, const RunOptions& options, Subset subset) {
  const DType dtype = plan.training.dtype;
  if (options.data != "synthetic")
    return load_folder(setup.model, options.data, subset, {dtype, options.scale});
  const std::int64_t samples = subset == Subset::training ? options.synthetic_samples : setup.test_samples;
  return make_synthetic(setup.model, samples, options.seed, subset, dtype);
}

std::optional<Dataset> load_test(const Setup& setup, const plan::Plan& plan, const RunOptions& options) {
  if (setup.test_samples == 0) return std::nullopt;
  return load(setup, plan, options, Subset::test);
}

// Micro-batches that programs are expanded to: M of a step, or the mini-batches of the longest epoch.
int program_length(const Setup& setup, const plan::Plan& plan) {
  return setup.streams ? static_cast<int>(setup.length.count(0)) : plan.training.micro_batches;
}

}  // namespace

Job::Job(plan::Plan the_plan, RunOptions the_options, Setup the_setup)
    : plan(std::move(the_plan)),
      options(std::move(the_options)),
      setup(std::move(the_setup)),
      training(load(setup, plan, options, Subset::training)),
      test(load_test(setup, plan, options)),
      layers(stage_layers(plan)),
      recompute(recomputed_layers(plan)),
      wiring(wire(make_segments(plan, setup.model))),
      programs(finite_programs(plan, program_length(setup, plan))),
      owners(find_owners(programs, static_cast<int>(plan.stages.size()), program_length(setup, plan))),
      coordinator(static_cast<int>(plan.workers.size()), options.stall_timeout),
      gate(coordinator, setup.round),
      evaluation_gate(coordinator),
      ledger(coordinator, ledger_shape()),
      transport(make_in_process_transport(coordinator, mailbox_capacity(plan, wiring, programs))),
      start(Coordinator::Clock::now()) {
  evaluation_gate.grant(std::numeric_limits<Unit>::max());
  for (const plan::Stage& stage : plan.stages) {
    reducers.push_back(std::make_unique<AllReduce>(coordinator, stage.workers));
  }
  for (const plan::TiedParameter& tied : plan.tied) {
    std::set<WorkerId> workers;
    for (const StageId stage : tied.stages)
      workers.insert(plan.stages[index(stage)].workers.begin(), plan.stages[index(stage)].workers.end());
    tied_reducers.push_back(
        std::make_unique<TiedReduce>(coordinator, std::vector<WorkerId>(workers.begin(), workers.end())));
  }
}

LedgerShape Job::ledger_shape() const {
  const std::size_t participants = setup.streams ? plan.stages.size() : plan.workers.size();
  return {plan.training.micro_batches, static_cast<int>(participants), evaluation_count()};
}

int Job::tied_owner(std::size_t group) const {
  const std::string& user = plan.tied[group].layers.front();
  const auto found = std::ranges::find(plan.model.layers, user, &Layer::name);
  return setup.model.layers[static_cast<std::size_t>(found - plan.model.layers.begin())].weights_layer;
}

WorkerId Job::evaluation_owner(StageId stage, int micro_batch) const {
  const std::vector<WorkerId>& workers = plan.stages[index(stage)].workers;
  return workers[static_cast<std::size_t>(micro_batch) % workers.size()];
}

int Job::evaluation_count() const {
  if (!test) return 0;
  return static_cast<int>((test->samples + evaluation_size() - 1) / evaluation_size());
}

}  // namespace pp::run
