#include "librun/worker/wiring.h"

#include <algorithm>
#include <map>

#include "libprofile/core/error.h"

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

int peak(std::span<const plan::Op> program) {
  int now = 0, most = 1;
  for (const plan::Op& op : program) {
    if (op.kind == plan::OpKind::forward) most = std::max(most, ++now);
    if (op.kind == plan::OpKind::backward || op.kind == plan::OpKind::weight_gradient) --now;
  }
  return most;
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
    segments.emplace_back(model, layers[s], s + 1 == layers.size());
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

Owners find_owners(std::span<const plan::Program> programs, int stages, int micro_batches) {
  Owners owners(static_cast<std::size_t>(stages),
                std::vector<WorkerId>(static_cast<std::size_t>(micro_batches)));
  for (std::size_t w = 0; w < programs.size(); ++w) {
    for (const plan::Op& op : programs[w]) {
      if (op.kind != plan::OpKind::forward) continue;
      owners[index(op.stage)][static_cast<std::size_t>(op.micro_batch)] = WorkerId{static_cast<int>(w)};
    }
  }
  return owners;
}

std::vector<plan::Program> finite_programs(const plan::Plan& plan, int micro_batches) {
  std::vector<plan::Program> programs;
  for (const plan::Worker& worker : plan.workers) {
    const auto& stream = worker.program.stream;
    programs.push_back(stream ? plan::expand(*stream, micro_batches) : worker.program.program);
  }
  return programs;
}

std::vector<std::vector<int>> mailbox_capacity(const plan::Plan& plan, std::span<const StageWiring> wiring,
                                               std::span<const plan::Program> programs) {
  const std::size_t workers = programs.size();
  std::vector<std::vector<int>> capacity(workers, std::vector<int>(workers, 1));
  for (std::size_t s = 0; s < wiring.size(); ++s) {
    for (const StageInput& input : wiring[s].inputs) {
      if (input.producer < 0) continue;
      for (const WorkerId from : plan.stages[static_cast<std::size_t>(input.producer)].workers) {
        for (const WorkerId to : plan.stages[s].workers) {
          const int window = 2 * std::max(peak(programs[index(from)]), peak(programs[index(to)]));
          capacity[index(to)][index(from)] += window;
          if (input.gradient) capacity[index(from)][index(to)] += window;
        }
      }
    }
  }
  return capacity;
}

}  // namespace pp::run
