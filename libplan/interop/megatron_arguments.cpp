// Source: Megatron-LM, core release 0.13 and later (megatron/training/arguments.py; which blocks a stage has
// without a layout: core/transformer/transformer_block.py). A layout becomes one letter per layer of Megatron's
// and bars between its stages; cuts stand at the bars.
#include "libplan/interop/megatron_arguments.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "libplan/interop/megatron_model.h"
#include "libplan/request/shapes.h"
#include "libprofile/core/blocks.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"
#include "libprofile/core/text.h"

namespace pp::plan {
namespace {

[[noreturn]] void refuse(const std::string& layout, const std::string& why) {
  throw Error(ErrorKind::usage, "--layout " + layout + ": " + why);
}

/// The layout without repetitions.
class Unrolled {
 public:
  explicit Unrolled(const std::string& layout) : layout_(layout), text_(layout) {
    std::erase(text_, ',');
    std::erase(text_, ' ');
  }

  std::string letters() {
    std::string letters;
    while (next_ < text_.size()) append(letters, take());
    return letters;
  }

 private:
  /// A letter, or a group in brackets.
  std::string take() {
    const char letter = text_[next_++];
    if (letter != '(') {
      if (std::string_view("EtmL|").find(letter) == std::string_view::npos)
        refuse(layout_, "'" + std::string(1, letter) + "' is none of E, t, L, |, ( ), *n");
      return std::string(1, letter);
    }
    std::string group;
    while (next_ < text_.size() && text_[next_] != ')') {
      if (text_[next_] == '(') refuse(layout_, "Megatron knows no brackets within brackets");
      append(group, take());
    }
    if (next_ == text_.size()) refuse(layout_, "a bracket is not closed");
    ++next_;
    return group;
  }

  /// `part`, as often as the `*n` behind it says.
  void append(std::string& letters, const std::string& part) {
    constexpr int kMost = 10'000;
    int times = 1;
    if (next_ < text_.size() && text_[next_] == '*') {
      const char* const end = text_.data() + text_.size();
      const auto [behind, error] = std::from_chars(text_.data() + next_ + 1, end, times);
      if (error != std::errc() || times < 1 || times > kMost)
        refuse(layout_, "behind * stands a number from 1 to " + std::to_string(kMost));
      next_ = at(static_cast<int>(behind - text_.data()));
    }
    if (letters.size() + part.size() * at(times) > at(kMost))
      refuse(layout_, "more than " + std::to_string(kMost) + " letters");
    for (int i = 0; i < times; ++i) letters += part;
  }

  const std::string& layout_;
  std::string text_;
  std::size_t next_ = 0;
};

/// E and L once each, at the ends, so many t between them, and behind these so many m.
void check_letters(const std::string& layout, const std::string& letters, std::size_t blocks,
                   std::size_t predictions) {
  std::string layers = letters;
  std::erase(layers, '|');
  const auto t = static_cast<std::size_t>(std::ranges::count(layers, 't'));
  const auto m = static_cast<std::size_t>(std::ranges::count(layers, 'm'));
  if (layers != "E" + std::string(t, 't') + std::string(m, 'm') + "L")
    refuse(layout, "E stands first, L last, between them t, and m behind all t");
  if (m != predictions)
    refuse(layout, "it has " + std::to_string(m) +
                       " m, blocks of multi-token prediction, and the profile's model " +
                       std::to_string(predictions) + "; estimate one of config.json:mtp=" + std::to_string(m));
  if (t != blocks || blocks == 0)
    refuse(layout, "it has " + counted(static_cast<std::int64_t>(t), "block") + ", and the profile's model " +
                       std::to_string(blocks));
}

}  // namespace

std::vector<int> cuts_of_layout(const PlanGraph& graph, std::size_t predictions, const std::string& layout) {
  const std::string letters = Unrolled(layout).letters();
  const std::vector<std::vector<int>> blocks = numbered_blocks(graph);
  check_letters(layout, letters, blocks.size() - predictions, predictions);
  std::vector<int> cuts;
  int next = 0;  // the first layer of the next letter's
  std::size_t block = 0;
  for (std::size_t i = 0; i < letters.size(); ++i) {
    if (letters[i] == '|') {
      if (i == 0 || letters[i - 1] == '|' || i + 1 == letters.size()) refuse(layout, "a stage has no layer");
      cuts.push_back(next);
    } else if (letters[i] == 'E') {
      next = blocks.front().front();
      if (next == 0) refuse(layout, "nothing stands in front of the model's first block");
    } else if (letters[i] != 'L') {
      // A norm between blocks and predictions is the blocks'.
      next = block + 1 == blocks.size() - predictions && predictions > 0 ? blocks[block + 1].front()
                                                                         : blocks[block].back() + 1;
      ++block;
    }
  }
  if (next == graph.size()) refuse(layout, "nothing stands behind the model's last block");
  return cuts;
}

namespace {

[[noreturn]] void refuse_argument(const std::string& name, const std::string& why) {
  throw Error(ErrorKind::usage, "--" + name + ": " + why);
}

class Reader {
 public:
  explicit Reader(const MegatronArguments& arguments) : arguments_(arguments) {}

  bool has(std::string_view name) const { return arguments_.contains(name); }
  std::string text(std::string_view name, const std::string& otherwise = "") const {
    const auto found = arguments_.find(name);
    return found == arguments_.end() ? otherwise : found->second;
  }
  int number(std::string_view name, int otherwise) const {
    const auto found = arguments_.find(name);
    if (found == arguments_.end()) return otherwise;
    const std::string& value = found->second;
    int n = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
    if (error != std::errc() || end != value.data() + value.size() || n < 1)
      refuse_argument(std::string(name), "\"" + value + "\" is not a whole number from 1");
    return n;
  }

 private:
  const MegatronArguments& arguments_;
};

/// Arguments that are read here.
constexpr std::array<std::string_view, 32> kRead{kMegatronPredictions,
                                                 "tensor-model-parallel-size",
                                                 "context-parallel-size",
                                                 "expert-model-parallel-size",
                                                 "expert-tensor-parallel-size",
                                                 "sequence-parallel",
                                                 "pipeline-model-parallel-size",
                                                 "pipeline-model-parallel-layout",
                                                 "num-layers-per-virtual-pipeline-stage",
                                                 "num-virtual-stages-per-pipeline-rank",
                                                 "decoder-first-pipeline-num-layers",
                                                 "decoder-last-pipeline-num-layers",
                                                 "account-for-embedding-in-pipeline-split",
                                                 "account-for-loss-in-pipeline-split",
                                                 "num-layers",
                                                 "micro-batch-size",
                                                 "global-batch-size",
                                                 "recompute-activations",
                                                 "recompute-granularity",
                                                 "recompute-method",
                                                 "recompute-num-layers",
                                                 "recompute-modules",
                                                 "use-distributed-optimizer",
                                                 "overlap-grad-reduce",
                                                 "overlap-param-gather",
                                                 "optimizer",
                                                 "bf16",
                                                 "fp8-format",
                                                 "fp8-recipe",
                                                 "fp4-format",
                                                 "fp4-recipe",
                                                 "moe-token-dispatcher-type"};
/// Compared with what an export of the profile's model would say.
constexpr std::array<std::string_view, 11> kSizes{"num-layers",
                                                  "seq-length",
                                                  "hidden-size",
                                                  "ffn-hidden-size",
                                                  "num-attention-heads",
                                                  "num-query-groups",
                                                  "kv-channels",
                                                  "num-experts",
                                                  "moe-router-topk",
                                                  "moe-ffn-hidden-size",
                                                  "max-position-embeddings"};
/// What changes a step and is not priced, and what it is.
constexpr std::array kUnpriced{std::pair{"fp16", "loss scales in float16"},
                               std::pair{"use-tp-pp-dp-mapping", "stages as neighbours in place of replicas"},
                               std::pair{"use-megatron-fsdp", "weights and gradients divided among replicas"},
                               std::pair{"use-custom-fsdp", "weights and gradients divided among replicas"},
                               std::pair{"use-torch-fsdp2", "weights and gradients divided among replicas"},
                               std::pair{"cpu-offloading", "activations on the host"},
                               std::pair{"fine-grained-activation-offloading", "activations on the host"},
                               std::pair{"optimizer-cpu-offload", "the optimizer's state on the host"},
                               std::pair{"encoder-num-layers", "an encoder beside the decoder"},
                               std::pair{"rampup-batch-size", "mini-batches that grow"}};

const std::string kMegatron = "Megatron-LM";

int virtual_stages(const Reader& read, int blocks, int pipeline) {
  if (read.has("num-virtual-stages-per-pipeline-rank"))
    return read.number("num-virtual-stages-per-pipeline-rank", 1);
  if (!read.has("num-layers-per-virtual-pipeline-stage")) return 1;
  const int each = read.number("num-layers-per-virtual-pipeline-stage", 1);
  if (blocks % (pipeline * each) != 0)
    refuse_argument("num-layers-per-virtual-pipeline-stage",
                    std::to_string(blocks) + " layers are not stages of " + std::to_string(each) + " on " +
                        std::to_string(pipeline) + " ranks");
  return blocks / (pipeline * each);
}

/// Blocks of each stage where no layout says them.
std::vector<int> even_blocks(const Reader& read, int blocks, int stages) {
  const bool embedding = read.has("account-for-embedding-in-pipeline-split");
  const bool loss = read.has("account-for-loss-in-pipeline-split");
  const int first = read.number("decoder-first-pipeline-num-layers", 0);
  const int last = read.number("decoder-last-pipeline-num-layers", 0);
  const int between = stages - (first > 0 ? 1 : 0) - (last > 0 ? 1 : 0);
  const int left = blocks - first - last + (embedding ? 1 : 0) + (loss ? 1 : 0);
  if (between > 0 ? left % between != 0 || left <= 0 : left != 0)
    refuse_argument("pipeline-model-parallel-size",
                    std::to_string(left) + " layers are not divided by " + std::to_string(between) +
                        " stages; give another size, or --pipeline-model-parallel-layout");
  std::vector<int> counts(at(stages), between > 0 ? left / between : 0);
  if (first > 0) counts.front() = first;
  if (last > 0) counts.back() = last;
  counts.front() -= embedding ? 1 : 0;
  counts.back() -= loss ? 1 : 0;
  return counts;
}

/// Where the arguments cut the model.
struct Split {
  int pipeline = 1, chunks = 1;
  std::vector<int> cuts;
};

Split split_of(const Reader& read, const Profile& profile) {
  const PlanGraph graph = make_graph(profile);
  const std::size_t predictions = prediction_blocks(profile.model).size();
  const int blocks = static_cast<int>(numbered_blocks(graph).size() - predictions);
  Split split{.pipeline = read.number("pipeline-model-parallel-size", 1), .cuts = {}};
  if (read.has("pipeline-model-parallel-layout")) {
    split.cuts = cuts_of_layout(graph, predictions, read.text("pipeline-model-parallel-layout"));
    const int stages = static_cast<int>(split.cuts.size()) + 1;
    if (stages % split.pipeline != 0)
      refuse_argument("pipeline-model-parallel-layout",
                      "its " + counted(stages, "stage") + " are not dealt to " +
                          std::to_string(split.pipeline) + " ranks (--pipeline-model-parallel-size)");
    split.chunks = stages / split.pipeline;
    return split;
  }
  split.chunks = virtual_stages(read, blocks, split.pipeline);
  std::string layout = "E";
  const std::vector<int> counts = even_blocks(read, blocks, split.pipeline * split.chunks);
  for (std::size_t s = 0; s < counts.size(); ++s) {
    if (s > 0) layout += '|';
    layout.append(at(std::max(0, counts[s])), 't');
  }
  split.cuts = cuts_of_layout(graph, predictions, layout + std::string(predictions, 'm') + "L");
  return split;
}

void check_degree(const Reader& read, const std::string& name, int degree, const std::string& option) {
  if (read.number(name, 1) == degree) return;
  refuse_argument(name, "the profile has degree " + std::to_string(degree) + ", the arguments " +
                            std::to_string(read.number(name, 1)) + "; estimate one with " + option + " " +
                            std::to_string(read.number(name, 1)));
}

/// What an export of the profile's model says.
MegatronArguments model_arguments(const Profile& profile) {
  const ResolvedModel model = resolve(profile.model);
  const detail::BlockRow row = detail::block_row_of(model, kMegatron);
  MegatronArguments own = parse_megatron_arguments(detail::megatron_model(model, row).arguments);
  own["num-layers"] = std::to_string(row.size());
  return own;
}

void check_sizes(const MegatronArguments& arguments, const Profile& profile) {
  const MegatronArguments own = model_arguments(profile);
  for (const std::string_view name : kSizes) {
    const auto given = arguments.find(name);
    const auto there = own.find(name);
    if (given == arguments.end() || there == own.end() || given->second == there->second) continue;
    refuse_argument(std::string(name), given->second + ", and the profile's model has " + there->second +
                                           "; price with a profile of the same model");
  }
}

void check_predictions(const Reader& read, const Profile& profile) {
  const int there = static_cast<int>(prediction_blocks(profile.model).size());
  const int asked = read.number(kMegatronPredictions, 0);
  if (asked == there) return;
  refuse_argument(std::string(kMegatronPredictions),
                  std::to_string(asked) + ", and the profile's model has " + std::to_string(there) +
                      "; estimate one of config.json:mtp=" + std::to_string(asked));
}

void check_types(const Reader& read, const Profile& profile) {
  if (read.has("bf16") != (profile.dtype == DType::bfloat16))
    refuse_argument("bf16", std::string(read.has("bf16") ? "given" : "missing") + ", and the profile is of " +
                                std::string(name_of(profile.dtype)) + "; estimate one with --dtype " +
                                (read.has("bf16") ? "bfloat16" : "float32"));
  const bool mx = read.text("fp8-recipe") == "mxfp8";
  std::optional<NarrowType> products;
  if (read.has("fp8-format")) products = mx ? NarrowType::mxfloat8 : NarrowType::float8;
  if (read.has("fp4-format")) products = NarrowType::float4;
  if (products == profile.products) return;
  const auto word = [&](const auto& type) {
    return std::string(type ? name_of(*type) : name_of(profile.dtype));
  };
  refuse_argument(read.has("fp4-format") ? "fp4-format" : "fp8-format",
                  "the profile's products are of " + word(profile.products) + "; estimate one with --dtype " +
                      word(products));
}

/// What is recomputed, as profiles say it: empty, `attention`, `blocks`, `first 2 blocks of each stage`.
std::string recomputed(const Reader& read) {
  const std::string granularity =
      read.text("recompute-granularity", read.has("recompute-activations") ? "selective" : "");
  if (granularity.empty()) return "";
  if (granularity == "selective") {
    if (read.text("recompute-modules", "core_attn") == "core_attn") return "attention";
    refuse_argument("recompute-modules",
                    "\"" + read.text("recompute-modules") + "\" is not priced; core_attn is");
  }
  const int count = read.number("recompute-num-layers", 1);
  if (read.text("recompute-method") == "block") return "first " + counted(count, "block") + " of each stage";
  if (count > 1)
    refuse_argument("recompute-num-layers",
                    "uniform recomputation of several layers at once is not priced; 1 is");
  return "blocks";
}

/// The first blocks of every stage, as positions among all; of no predictions.
std::vector<int> first_of_stages(const Profile& profile, const Split& split, int count) {
  std::vector<int> chosen;
  const std::vector<Block> blocks = blocks_of(profile.model);
  const int decoding = static_cast<int>(blocks.size() - prediction_blocks(profile.model).size());
  int stage = -1, left = 0;
  for (int b = 0; b < decoding; ++b) {
    const auto of =
        static_cast<int>(std::ranges::upper_bound(split.cuts, blocks[at(b)].begin) - split.cuts.begin());
    if (std::exchange(stage, of) != of) left = count;
    if (left-- > 0) chosen.push_back(b);
  }
  return chosen;
}

}  // namespace

MegatronArguments parse_megatron_arguments(std::string_view text) {
  MegatronArguments arguments;
  std::string* value = nullptr;
  std::string word;
  const auto take = [&] {
    if (word.starts_with("--")) {
      const std::size_t sign = std::min(word.find('='), word.size());
      value = &(arguments[word.substr(2, sign - 2)] = sign < word.size() ? word.substr(sign + 1) : "");
    } else if (value != nullptr && !word.empty()) {
      *value += (value->empty() ? "" : " ") + word;
    }
    word.clear();
  };
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote == 0 && c == '#' && word.empty()) {
      i = std::min(text.find('\n', i), text.size()) - 1;
    } else if (c == quote || (quote == 0 && (c == '"' || c == '\''))) {
      quote = quote == 0 ? c : '\0';
    } else if (quote == 0 && (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\\')) {
      take();
    } else {
      word += c;
    }
  }
  take();
  for (const auto& [name, of] : arguments)
    if (of.find('$') != std::string::npos && std::ranges::find(kRead, name) != kRead.end())
      refuse_argument(name, of + " is a variable of the shell; write its value");
  return arguments;
}

Profile profile_by(const MegatronArguments& arguments, Profile profile) {
  const Reader read(arguments);
  for (const auto& [name, what] : kUnpriced)
    if (read.has(name)) refuse_argument(name, std::string(what) + ", which is not priced; leave it out");
  check_sizes(arguments, profile);
  check_predictions(read, profile);
  check_degree(read, "tensor-model-parallel-size", profile.tensor_degree, "--tensor");
  check_degree(read, "context-parallel-size", profile.context_parallel.degree, "--context-parallel");
  check_degree(read, "expert-model-parallel-size", profile.expert_parallel.degree, "--expert-parallel");
  check_types(read, profile);
  const auto split = profile.context.find("sequence_parallel");
  if (profile.tensor_degree > 1 && split != profile.context.end() &&
      (split->second == "true") != read.has("sequence-parallel"))
    refuse_argument("sequence-parallel", std::string(read.has("sequence-parallel") ? "given" : "missing") +
                                             ", unlike in the profile; estimate one " +
                                             (read.has("sequence-parallel") ? "without" : "with") +
                                             " --no-sequence-parallel");
  const std::string again = recomputed(read);
  const auto said = profile.context.find("checkpoint");
  if (said != profile.context.end() ? said->second == again : again.empty()) return profile;
  if (said != profile.context.end() || again == "attention")
    refuse_argument("recompute-granularity",
                    "the arguments recompute " + (again.empty() ? "nothing" : again) + ", the profile " +
                        (said == profile.context.end() ? "nothing" : said->second) + "; estimate one " +
                        (again == "attention" ? "with --checkpoint=attention" : "without --checkpoint"));
  if (again == "blocks") return with_checkpoints(std::move(profile));
  const std::vector<int> first =
      first_of_stages(profile, split_of(read, profile), read.number("recompute-num-layers", 1));
  return with_checkpoints(std::move(profile), again, first);
}

PlanRequest request_by(const MegatronArguments& arguments, const Profile& profile, int devices,
                       PlanRequest request) {
  const Reader read(arguments);
  const Split split = split_of(read, profile);
  if (devices % split.pipeline != 0)
    refuse_argument("pipeline-model-parallel-size", "pipelines of " + std::to_string(split.pipeline) +
                                                        " do not divide " + counted(devices, "device"));
  const int replicas = devices / split.pipeline;
  const int groups = group_size(profile) / (profile.tensor_degree * profile.context_parallel.degree);
  if (!read.has("micro-batch-size")) refuse_argument("micro-batch-size", "missing; it is priced with it");
  const int samples = read.number("micro-batch-size", 1) * groups;
  request.mini_batch = read.number("global-batch-size", samples * replicas);
  if (request.mini_batch % (samples * replicas) != 0)
    refuse_argument("global-batch-size", std::to_string(request.mini_batch) + " is not a multiple of " +
                                             std::to_string(samples * replicas) + ", micro-batches of " +
                                             counted(replicas * groups, "replica"));
  request.micro_batches = request.mini_batch / samples;
  request.cuts = split.cuts;
  request.stages = split.pipeline;
  request.chunks_per_worker = split.chunks > 1 ? split.chunks : 0;
  request.schedule = split.chunks > 1 ? "interleaved" : "hybrid";
  request.replicas.assign(at(split.pipeline), replicas);
  request.recompute = RecomputeMode::never;
  request.shard = read.has("use-distributed-optimizer") ? ShardChoice::optimizer : ShardChoice::none;
  request.optimizer = read.text("optimizer", "adam") == "sgd" ? OptimizerName::sgd : OptimizerName::adamw;
  const bool known = profile.trainer && profile.trainer->hidden_gradients > 0;
  if (!read.has("overlap-grad-reduce"))
    request.all_reduce_overlap = 0;
  else if (!known && !request.all_reduce_overlap)
    request.all_reduce_overlap = 1;
  return request;
}

PlanRequest request_by_layout(int devices, PlanRequest request) {
  const int stages = static_cast<int>(request.cuts.size()) + 1, chunks = std::max(1, request.chunks_per_worker);
  const int workers = stages / chunks;
  if (stages % chunks != 0)
    throw Error(ErrorKind::usage, "--layout has " + counted(stages, "stage") + ", which are not " +
                                      std::to_string(chunks) + " (--chunks) for each worker");
  if (devices % workers != 0)
    throw Error(ErrorKind::usage, "--layout: pipelines of " + counted(workers, "worker") + " do not divide " +
                                      counted(devices, "device"));
  request.stages = workers;
  request.schedule = chunks > 1 ? "interleaved" : "hybrid";
  request.replicas.assign(at(workers), devices / workers);
  return request;
}

std::vector<std::string> unread_arguments(const MegatronArguments& arguments, const Profile& profile) {
  const MegatronArguments own = model_arguments(profile);
  std::vector<std::string> unread;
  for (const auto& [name, value] : arguments) {
    const auto is = [&](const auto& list) { return std::ranges::find(list, name) != list.end(); };
    if (!is(kRead) && !is(kSizes) && !own.contains(name)) unread.push_back("--" + name);
  }
  return unread;
}

}  // namespace pp::plan
