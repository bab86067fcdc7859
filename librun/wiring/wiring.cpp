#include "librun/wiring/wiring.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>

#include "libprofile/core/error.h"
#include "librun/swap/residency.h"

namespace pp::run {

namespace {

// Stage that computes a tensor; -1 for the model's inputs and targets.
int producer_of(const TensorSource& source, std::span<const model::Segment> segments) {
  if (source.kind != TensorSource::Kind::layer) return -1;
  for (std::size_t s = 0; s < segments.size(); ++s) {
    const std::vector<int>& layers = segments[s].layers();
    if (std::binary_search(layers.begin(), layers.end(), source.index)) return static_cast<int>(s);
  }
  throw Error(ErrorKind::internal, "layer " + std::to_string(source.index) + " is in no stage");
}

StageOutput& find_output(StageWiring& producer, const TensorSource& source) {
  for (StageOutput& output : producer.outputs) {
    if (output.source == source) return output;
  }
  throw Error(ErrorKind::internal, "output " + std::to_string(source.output) + " of layer " +
                                       std::to_string(source.index) +
                                       " is read by another stage but does not leave its own");
}

// After how many micro-batches two turns meet.
int joint_period(int a, std::int64_t b) {
  constexpr std::int64_t kMost = 1'000'000;
  const std::int64_t joint = std::lcm(std::int64_t{a}, b);
  if (joint <= kMost) return static_cast<int>(joint);
  throw Error(ErrorKind::data, "/workers: replicas take turns that meet after " + std::to_string(joint) +
                                   " micro-batches, the limit is " + std::to_string(kMost) +
                                   "; plan replicas with a smaller common multiple");
}

// Model-wide indices of the layers that every stage names, ascending.
std::vector<std::vector<int>> indices(const plan::Plan& plan, std::vector<std::string> plan::Stage::*names) {
  std::map<std::string, int, std::less<>> positions;
  for (std::size_t i = 0; i < plan.model.layers.size(); ++i)
    positions[plan.model.layers[i].name] = static_cast<int>(i);
  std::vector<std::vector<int>> all;
  for (const plan::Stage& stage : plan.stages) {
    std::vector<int>& layers = all.emplace_back();
    for (const std::string& name : stage.*names) layers.push_back(positions.at(name));
    std::sort(layers.begin(), layers.end());
  }
  return all;
}

}  // namespace

std::vector<std::vector<int>> stage_layers(const plan::Plan& plan) {
  return indices(plan, &plan::Stage::layers);
}

std::vector<std::vector<int>> recomputed_layers(const plan::Plan& plan) {
  return indices(plan, &plan::Stage::recompute);
}

std::vector<model::Segment> make_segments(const plan::Plan& plan, const ResolvedModel& model) {
  std::vector<model::Segment> segments;
  const std::vector<std::vector<int>> layers = stage_layers(plan);
  for (std::size_t s = 0; s < layers.size(); ++s)
    segments.emplace_back(model, layers[s], model.graph.loss && s + 1 == layers.size());
  return segments;
}

std::vector<StageWiring> wire(std::span<const model::Segment> segments) {
  std::vector<StageWiring> wiring(segments.size());
  for (std::size_t s = 0; s < segments.size(); ++s) {
    for (const TensorSource& source : segments[s].outputs()) wiring[s].outputs.push_back({source, {}});
  }
  for (std::size_t s = segments.size(); s-- > 0;) {  // descending, so that consumers are
    for (std::size_t i = 0; i < segments[s].inputs().size(); ++i) {
      const TensorSource& source = segments[s].inputs()[i];
      const int producer = producer_of(source, segments);
      const bool gradient = segments[s].input_needs_gradient(static_cast<int>(i));
      wiring[s].inputs.push_back({source, producer, gradient});
      if (producer < 0) continue;
      StageOutput& output = find_output(wiring[static_cast<std::size_t>(producer)], source);
      output.consumers.push_back({StageId{static_cast<int>(s)}, gradient});
    }
  }
  return wiring;
}

bool shares_state(const plan::Plan& plan, StageId stage) {
  return plan.training.shard == plan::Shard::optimizer && plan.stages[index(stage)].workers.size() > 1;
}

std::vector<plan::Stream> training_streams(const plan::Plan& plan) {
  const bool clocked = plan::require_schedule(plan.schedule.name).rules == plan::RuleSet::clocked;
  std::vector<plan::Stream> streams;
  for (const plan::Worker& worker : plan.workers) {
    const auto& stream = worker.program.stream;
    streams.push_back(stream ? *stream : plan::steps_of(worker.program.program, plan.training.micro_batches));
    if (!clocked) continue;
    for (plan::Program* part : {&streams.back().prologue, &streams.back().body}) {
      for (plan::Op& op : *part) {
        if (plan::has_micro_batch(op.kind)) op.micro_batch -= number(op.stage);
      }
    }
  }
  return streams;
}

std::vector<plan::Stream> forward_streams(const plan::Plan& plan) {
  std::vector<plan::Stream> streams(plan.workers.size());
  for (plan::Stream& stream : streams) stream.period = 1;
  for (const plan::Stage& stage : plan.stages) {
    for (const WorkerId worker : stage.workers) {
      plan::Stream& stream = streams[index(worker)];
      stream.period = joint_period(stream.period, std::ssize(stage.workers));
    }
  }
  for (std::size_t w = 0; w < streams.size(); ++w) {
    for (int t = 0; t < streams[w].period; ++t) {
      for (std::size_t s = 0; s < plan.stages.size(); ++s) {
        const std::vector<WorkerId>& workers = plan.stages[s].workers;
        if (index(workers[static_cast<std::size_t>(t) % workers.size()]) != w) continue;
        streams[w].body.push_back({plan::OpKind::forward, StageId{static_cast<int>(s)}, t});
      }
    }
  }
  return streams;
}

std::vector<plan::Stream> swapped_forward_streams(const plan::Plan& plan) {
  std::vector<plan::Stream> streams;
  for (const plan::Worker& worker : plan.workers)
    streams.push_back(plan::steps_of(forward_part(worker.program.program), plan.training.micro_batches));
  return streams;
}

Owners::Owners(std::span<const plan::Stream> streams, int stages, Of what)
    : turns_(static_cast<std::size_t>(stages)) {
  const auto counts = [&](plan::OpKind kind) {
    if (what == Of::forwards) return kind == plan::OpKind::forward;
    return kind == plan::OpKind::backward || kind == plan::OpKind::input_gradient;
  };
  const auto for_each = [&](auto&& visit) {
    for (std::size_t w = 0; w < streams.size(); ++w) {
      for (const plan::Program* part : {&streams[w].prologue, &streams[w].body}) {
        for (const plan::Op& op : *part) {
          if (counts(op.kind)) visit(op, WorkerId{static_cast<int>(w)}, streams[w].period);
        }
      }
    }
  };
  std::vector<int> periods(turns_.size(), 1);
  for_each([&](const plan::Op& op, WorkerId, int period) {
    periods[index(op.stage)] = joint_period(periods[index(op.stage)], period);
  });
  for (std::size_t s = 0; s < turns_.size(); ++s) turns_[s].resize(static_cast<std::size_t>(periods[s]));
  for_each([&](const plan::Op& op, WorkerId worker, int period) {
    std::vector<WorkerId>& turns = turns_[index(op.stage)];
    for (auto t = static_cast<std::size_t>(op.micro_batch % period); t < turns.size();
         t += static_cast<std::size_t>(period))
      turns[t] = worker;
  });
}

}  // namespace pp::run
