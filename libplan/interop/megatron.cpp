// Source: Megatron-LM, `--pipeline-model-parallel-layout`: E embedding, t decoder layer, L loss, `|` between
// stages, `t*n` for n layers. Its schedules are 1F1B and, with more stages than workers, interleaved.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "libplan/interop/trainer_export.h"
#include "libplan/schedule/schedule.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

const std::string kTrainer = "Megatron-LM";

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorKind::data, kTrainer + " cannot run this plan: " + why);
}

/// A row of blocks in the model: layers `PREFIX<n>.*`.
struct Blocks {
  std::vector<std::size_t> begins;  ///< first layer of each block
  std::size_t end = 0;              ///< behind the last one
};

/// What makes two blocks equal: their operations and parameters.
using Signature = std::vector<std::pair<std::string, std::vector<Shape>>>;

Signature signature_of(const ResolvedModel& model, std::size_t begin, std::size_t end) {
  Signature signature;
  for (std::size_t i = begin; i < end; ++i) {
    auto& [op, shapes] = signature.emplace_back(model.graph.layers[i].op, std::vector<Shape>());
    for (const ParameterSpec& parameter : model.layers[i].parameters) shapes.push_back(parameter.shape);
  }
  return signature;
}

/// `h.` and 3 of `h.3` in `h.3.attention.qkv`: every part of the path that ends in a number.
std::vector<std::pair<std::string, int>> numbered_parts(const std::string& module) {
  constexpr std::size_t kMostDigits = 6;
  std::vector<std::pair<std::string, int>> parts;
  for (std::size_t dot = 0; dot != module.npos;) {
    dot = module.find('.', dot + 1);
    const std::string part = module.substr(0, dot);
    const std::size_t digits = part.find_last_not_of("0123456789") + 1;
    if (digits < part.size() && part.size() - digits <= kMostDigits)
      parts.emplace_back(part.substr(0, digits), std::stoi(part.substr(digits)));
  }
  return parts;
}

/// The row that the layers of one prefix make, without a gap; no blocks when they are none, or not equal.
Blocks row_of(const ResolvedModel& model, const std::map<std::size_t, int>& numbers) {
  Blocks row;
  std::size_t next = numbers.begin()->first;
  for (const auto& [layer, n] : numbers) {
    if (layer != next) return {};
    const int count = static_cast<int>(row.begins.size());
    if (n == count) {
      row.begins.push_back(layer);
    } else if (n != count - 1) {
      return {};
    }
    ++next;
  }
  row.end = next;
  for (std::size_t b = 1; b < row.begins.size(); ++b) {
    const std::size_t end = b + 1 < row.begins.size() ? row.begins[b + 1] : row.end;
    if (signature_of(model, row.begins[b], end) != signature_of(model, row.begins[0], row.begins[1])) return {};
  }
  return row;
}

/// The row of equal blocks that holds most of the layers.
Blocks blocks_of(const ResolvedModel& model) {
  std::map<std::string, std::map<std::size_t, int>> numbers;  // per prefix: layer -> its number
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    for (const auto& [prefix, n] : numbered_parts(detail::module_of(model.graph.layers[i])))
      numbers[prefix][i] = n;
  }
  Blocks best;
  for (const auto& [prefix, of_layers] : numbers) {
    Blocks row = row_of(model, of_layers);
    if (row.begins.size() < 2) continue;
    if (best.begins.empty() || row.end - row.begins[0] > best.end - best.begins[0]) best = std::move(row);
  }
  if (best.begins.empty()) {
    refuse("it takes rows of equal blocks, and the layers of " + model.graph.name +
           " are none (names such as h.0.attention, h.1.attention, ...)");
  }
  return best;
}

/// `Et*3` for an embedding and three blocks.
std::string stage_text(bool embedding, int blocks, bool loss) {
  std::string text = embedding ? "E" : "";
  if (blocks > 0) text += blocks == 1 ? "t" : "t*" + std::to_string(blocks);
  return text + (loss ? "L" : "");
}

std::string layout_of(const Plan& plan, const Blocks& blocks) {
  const std::vector<int> stage_of = detail::stage_of_layers(plan);
  const int last = static_cast<int>(plan.stages.size()) - 1;
  const auto name = [&](std::size_t layer) { return plan.model.layers[layer].name; };
  for (std::size_t i = 0; i < blocks.begins[0]; ++i)
    if (stage_of[i] != 0)
      refuse(name(i) + " stands before the blocks and belongs into the first stage; plan with --cut-at block");
  for (std::size_t i = blocks.end; i < stage_of.size(); ++i)
    if (stage_of[i] != last)
      refuse(name(i) + " stands behind the blocks and belongs into the last stage; plan with --cut-at block");
  std::vector<int> count(plan.stages.size());
  for (std::size_t b = 0; b < blocks.begins.size(); ++b) {
    const std::size_t end = b + 1 < blocks.begins.size() ? blocks.begins[b + 1] : blocks.end;
    for (std::size_t i = blocks.begins[b]; i < end; ++i) {
      if (stage_of[i] != stage_of[blocks.begins[b]]) {
        refuse("stage " + std::to_string(stage_of[i]) + " begins with " + name(i) +
               ", inside a block; plan with --cut-at block");
      }
    }
    ++count[at(stage_of[blocks.begins[b]])];
  }
  std::string layout;
  for (int s = 0; s <= last; ++s) layout += (s > 0 ? "|" : "") + stage_text(s == 0, count[at(s)], s == last);
  return layout;
}

/// Stage s on worker s mod K, run in the order of Megatron's own schedule.
void check_order(const Plan& plan, const detail::Lane& lane, detail::LossList& lost) {
  const int workers = std::max(1, static_cast<int>(lane.programs.size()));
  const int stages = static_cast<int>(plan.stages.size());
  for (int w = 0; w < workers; ++w) {
    for (std::size_t c = 0; c < lane.stages[at(w)].size(); ++c) {
      const int stage = lane.stages[at(w)][c];
      if (stages % workers == 0 && stage == w + static_cast<int>(c) * workers) continue;
      refuse("stage " + std::to_string(stage) + " is on worker " + std::to_string(w) +
             "; it deals stages to workers in turns; plan with --schedule 1f1b or interleaved");
    }
  }
  ScheduleRequest request{.name = stages == workers ? "1f1b" : "interleaved",
                          .replicas = std::vector<int>(at(workers), 1),
                          .micro_batches = lane.micro_batches,
                          .window = WindowRule::published,
                          .chunks_per_worker = stages / workers};
  if (stages > workers && lane.micro_batches % workers != 0) {
    refuse("interleaved stages need a multiple of " + std::to_string(workers) +
           " micro-batches, the plan has " + std::to_string(lane.micro_batches));
  }
  const ProgramSet own = program_set(request);
  for (std::size_t w = 0; w < lane.programs.size(); ++w) {
    Program program = own.workers[w];
    std::erase_if(program, [](const Op& op) { return !has_micro_batch(op.kind); });
    if (program == lane.programs[w]) continue;
    const bool wider = plan.schedule.name == request.name;
    return lost.add("its " + request.name + " runs in another order than the plan's " + plan.schedule.name +
                    ", with other times and memory than predicted, unless planned with " +
                    (wider ? "--window win" : "--schedule " + request.name));
  }
}

/// Half types are of mixed precision there, and the optimizer's state is divided as here.
std::string precision_arguments(const Training& training, detail::LossList& lost) {
  std::string text;
  if (training.precision == Precision::mixed) text = "--bf16\n";
  if (training.precision == Precision::autocast)
    lost.add("it has no autocast, which keeps weights in float32; plan with --precision mixed");
  if (training.shard == Shard::optimizer) text += "--use-distributed-optimizer\n";
  return text;
}

/// Full recomputation is a setting of the whole model there.
std::string recompute_arguments(const Plan& plan, detail::Lane& lane, detail::LossList& lost) {
  if (plan.schedule.recompute != RecomputePolicy::always) {
    detail::leave_out_recompute(plan, lane, lost);
    return {};
  }
  detail::LossList said(Losses::leave_out);
  detail::leave_out_recompute(plan, lane, said);
  return "--recompute-granularity full\n--recompute-method uniform\n--recompute-num-layers 1\n";
}

}  // namespace

TrainerExport export_megatron(const Plan& plan, Losses losses) {
  detail::LossList lost(losses);
  detail::Lane lane = detail::lane_of(plan, kTrainer);
  const Blocks blocks = blocks_of(resolve(plan.model));
  const std::string layout = layout_of(plan, blocks);
  const std::string recompute = recompute_arguments(plan, lane, lost);
  const std::string precision = precision_arguments(plan.training, lost);
  check_order(plan, lane, lost);
  const Training& training = plan.training;
  const auto argument = [](const std::string& name, std::size_t value) {
    return "--" + name + " " + std::to_string(value) + "\n";
  };
  TrainerExport out;
  out.lost = lost.settle(kTrainer);
  out.files = {
      {"arguments.txt", argument("pipeline-model-parallel-size", lane.programs.size()) +
                            "--pipeline-model-parallel-layout " + layout + "\n" +
                            argument("num-layers", blocks.begins.size()) +
                            argument("micro-batch-size", at(training.mini_batch / training.micro_batches)) +
                            argument("global-batch-size", at(training.mini_batch)) + recompute + precision}};
  return out;
}

}  // namespace pp::plan
