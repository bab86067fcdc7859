#include "libprofile/model/families/hugging_face.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/limits.h"
#include "libprofile/core/ops/op_table.h"
#include "libprofile/model/families/config_reader.h"
#include "libprofile/model/families/decoder_rows.h"

namespace pp::model {
namespace {

using namespace std::string_view_literals;

constexpr std::int64_t kMostBlocks = 2048, kMostPositions = 1 << 20;

struct ConfigArguments {
  std::optional<std::int64_t> layers, sequence, mtp;
};

ConfigArguments parse_arguments(std::string_view text) {
  ConfigArguments found;
  const auto fail = [&](const std::string& message) { throw Error(ErrorKind::usage, message); };
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const std::string name(item.substr(0, item.find('=')));
    if (name != "layers" && name != "sequence" && name != "mtp")
      fail("unknown argument \"" + name + "\"; use layers=N, sequence=N and mtp=N");
    std::optional<std::int64_t>& place = name == "layers" ? found.layers
                                         : name == "mtp"  ? found.mtp
                                                          : found.sequence;
    if (place) fail("argument \"" + name + "\" appears twice; give it once");
    const std::string_view number = item.substr(std::min(item.size(), name.size() + 1));
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    const std::int64_t most = name == "sequence" ? kMostPositions : kMostBlocks, least = name == "mtp" ? 0 : 1;
    if (error != std::errc{} || end != number.data() + number.size() || value < least || value > most) {
      fail(name + "=" + std::string(number) + " is out of range; use an integer from " + std::to_string(least) +
           " to " + std::to_string(most));
    }
    place = value;
  }
  return found;
}

/// transformers' names (its ACT2FN) and ours.
std::string activation_of(ConfigReader& config, std::string_view key, const std::string& otherwise) {
  static const std::map<std::string, std::string, std::less<>> kNames{{"silu", "silu"},
                                                                      {"swish", "silu"},
                                                                      {"gelu", "gelu"},
                                                                      {"gelu_python", "gelu"},
                                                                      {"gelu_new", "gelu_tanh"},
                                                                      {"gelu_pytorch_tanh", "gelu_tanh"},
                                                                      {"gelu_fast", "gelu_tanh"},
                                                                      {"gelu_accurate", "gelu_tanh"},
                                                                      {"gelu_python_tanh", "gelu_tanh"},
                                                                      {"relu", "relu"}};
  const std::string name = config.text_or(key, otherwise);
  if (const auto found = kNames.find(name); found != kNames.end()) return found->second;
  std::string list;
  for (const auto& [theirs, ours] : kNames) list.append(list.empty() ? "" : ", ").append(theirs);
  config.fail(key, "the activation \"" + name + "\" is not built; use one of " + list);
}

/// Of a document with as many keys as there are configurations.
class ConfigBuilder {
 public:
  ConfigBuilder(const Json& json, const DecoderRow& row, const ConfigArguments& arguments)
      : config_(json, "", std::string(row.type)),
        row_(row),
        arguments_(arguments),
        decoder_(decoder_of_family(row.type)) {}

  Decoder build() {
    check_architecture();
    read_sizes();
    if (row_.table) check_table();
    if (row_.read != nullptr) row_.read(config_, decoder_);
    if (decoder_.attention.contains("norms")) decoder_.attention.emplace("norm_eps", decoder_.eps);
    if (!row_.table) read_rotary();
    if (decoder_.latent.keys > 0) scale_latent();
    if (row_.experts != nullptr) read_experts(*row_.experts);
    if (row_.windows != Windows::none) read_windows();
    read_biases();
    decoder_.tied = config_.boolean_or("tie_word_embeddings", row_.tied);
    read_padding();
    decoder_.std = config_.number_or(row_.keys.std, decoder_.std, {1e-6, 100});
    if (const double p = config_.number_or(row_.keys.dropout, row_.dropout, {0, 0.99}); p > 0)
      decoder_.attention.emplace("dropout", p);
    for (const std::string_view key :
         {"is_encoder_decoder"sv, "add_cross_attention"sv, "rope_interleaved"sv, "use_mrope"sv})
      config_.require(key, false);
    config_.pass_over(neutral_keys());
    config_.finish();
    return std::move(decoder_);
  }

 private:
  /// Classifiers, reward and embedding models have another head, or none.
  void check_architecture() {
    if (!config_.given("architectures")) return;
    for (const std::string& name : config_.texts("architectures")) {
      if (name.ends_with("ForCausalLM") || name.ends_with("LMHeadModel")) continue;
      config_.fail("architectures",
                   "\"" + name +
                       "\" is no language model, and only these are built; bring the module in "
                       "by scripts/import-torch, or leave the key out to train a language model "
                       "of this shape");
    }
  }

  void read_sizes() {
    constexpr IntegerRange kWidths{1, kMostWidth};
    decoder_.vocabulary = config_.integer("vocab_size", kWidths);
    decoder_.width = config_.integer(row_.keys.width, kWidths);
    decoder_.hidden = row_.hidden_widths > 0
                          ? config_.integer_or(row_.keys.hidden, row_.hidden_widths * decoder_.width, kWidths)
                          : config_.integer(row_.keys.hidden, kWidths);
    if (decoder_.packed && decoder_.gated && decoder_.hidden > kMostWidth / 2)
      config_.fail(row_.keys.hidden, "must be at most " + std::to_string(kMostWidth / 2));
    const std::string_view count = row_.keys.blocks;
    blocks_ = config_.integer(count, {1, kMostBlocks});
    const std::int64_t blocks = arguments_.layers.value_or(blocks_);
    if (blocks > blocks_) {
      throw Error(ErrorKind::usage, "layers=" + std::to_string(blocks) + " is above " + std::string(count) +
                                        ", " + std::to_string(blocks_));
    }
    read_predictions();
    decoder_.blocks.resize(static_cast<std::size_t>(blocks + decoder_.predictions));
    read_heads();
    positions_ = config_.integer(row_.keys.positions, {1, std::int64_t{1} << 30});
    decoder_.sequence = arguments_.sequence.value_or(positions_);
    decoder_.eps = config_.number_or(row_.keys.eps, row_.eps, {0, 1});
    decoder_.activation = activation_of(config_, row_.keys.activation, std::string(row_.activation));
  }

  /// Left out where nobody asks for them, as transformers does.
  void read_predictions() {
    decoder_.predictions = arguments_.mtp.value_or(0);
    const std::int64_t most =
        row_.experts == nullptr ? 0 : config_.integer_or(kPredictionsKey, 0, {0, kMostBlocks});
    if (decoder_.predictions > most)
      throw Error(ErrorKind::usage, "mtp=" + std::to_string(decoder_.predictions) + " is above " +
                                        std::string(kPredictionsKey) + ", " + std::to_string(most));
  }

  void read_heads() {
    const std::string_view count = row_.keys.heads;
    decoder_.heads = config_.integer(count, {1, kMostWidth});
    const std::int64_t groups = row_.groups > 0 ? row_.groups : decoder_.heads;
    // A null is as many as heads, also where the class has a number of its own.
    decoder_.groups =
        !row_.grouped ? decoder_.heads
                      : config_.integer_or("num_key_value_heads",
                                           config_.mentioned("num_key_value_heads") ? decoder_.heads : groups,
                                           {1, kMostWidth});
    if (decoder_.heads % decoder_.groups != 0) {
      config_.fail("num_key_value_heads", std::to_string(decoder_.groups) +
                                              " must divide num_attention_heads, " +
                                              std::to_string(decoder_.heads));
    }
    std::int64_t width = row_.grouped ? config_.integer_or("head_dim", row_.head_width, {1, kMostWidth}) : 0;
    if (width == 0 && decoder_.width % decoder_.heads != 0 && (!row_.grouped || row_.divides)) {
      config_.fail(count, std::to_string(decoder_.heads) + " must divide " + std::string(row_.keys.width) +
                              ", " + std::to_string(decoder_.width));
    }
    if (width == 0) width = std::max<std::int64_t>(1, decoder_.width / decoder_.heads);
    decoder_.head_width = width;
    const std::int64_t packed = decoder_.packed ? decoder_.heads + 2 * decoder_.groups : decoder_.heads;
    if (packed > kMostWidth / width) {
      config_.fail(count, std::to_string(decoder_.heads) + " heads of " + std::to_string(width) +
                              " make projections wider than " + std::to_string(kMostWidth));
    }
  }

  void read_rotary() {
    read_rope(config_,
              {.base = row_.rope_base,
               .base_key = row_.keys.rope_base,
               .share = row_.rope_share,
               .share_key = row_.keys.rope_share,
               .partial = row_.partial,
               .scaled = row_.scaled,
               .head_width = decoder_.head_width,
               .positions = positions_},
              decoder_.attention);
    if (!row_.skips_rope) return;
    const std::int64_t interval = config_.integer_or("no_rope_layer_interval", 4, {1, kMostBlocks});
    std::vector<std::int64_t> rotates;
    if (config_.given("no_rope_layers")) rotates = config_.integers("no_rope_layers", {0, 1});
    if (!rotates.empty() && std::ssize(rotates) < std::ssize(decoder_.blocks))
      config_.fail("no_rope_layers",
                   "must have an entry for each of the " + std::to_string(blocks_) + " layers");
    for (std::size_t i = 0; i < decoder_.blocks.size(); ++i) {
      decoder_.blocks[i].rotates =
          rotates.empty() ? (static_cast<std::int64_t>(i) + 1) % interval != 0 : rotates[i] == 1;
    }
  }

  /// With yarn's factor of the scores, squared.
  void scale_latent() {
    const std::string_view key = config_.given("rope_scaling") ? "rope_scaling" : "rope_parameters";
    if (!decoder_.attention.contains("rotary_scaling")) return;
    ConfigReader rope = config_.object(key);
    const double weight = rope.number_or("mscale_all_dim", 0, {0, 1e6});
    const double factor = yarn_magnitude(rope.number_or("factor", 1, {1e-6, 1e6}), weight);
    const auto width = static_cast<double>(decoder_.latent.straight + decoder_.latent.rotated);
    if (weight > 0) decoder_.attention.emplace("scale", factor * factor / std::sqrt(width));
  }

  void read_experts(const ExpertsRow& row) {
    constexpr IntegerRange kCounts{1, kMostWidth};
    const std::string scores = row.sigmoid ? "sigmoid" : "softmax";
    const std::string_view count = row.dense_first                ? "n_routed_experts"
                                   : config_.given("num_experts") ? "num_experts"
                                                                  : "num_local_experts";
    const std::int64_t hidden = row.whole ? decoder_.hidden : config_.integer("moe_intermediate_size", kCounts);
    if (hidden > kMostWidth / 2)
      config_.fail("intermediate_size", "must be at most " + std::to_string(kMostWidth / 2));
    if (config_.text_or("scoring_func", scores) != scores)
      config_.fail("scoring_func", "is another than that of " + config_.who());
    decoder_.experts = {{"num_experts", config_.integer(count, {1, kMostExperts})},
                        {"experts_per_token", config_.integer("num_experts_per_tok", kCounts)},
                        {"hidden", hidden},
                        {"activation", decoder_.activation},
                        {"scores", scores},
                        {"normalised", config_.boolean_or("norm_topk_prob", row.whole || row.sigmoid)},
                        {"factor", config_.number_or("routed_scaling_factor", row.factor, {1e-6, 1e6})},
                        {"correction", row.sigmoid},
                        {"tensors", std::string(row.tensors)},
                        {"bias", row.clamped}};
    if (row.clamped)
      decoder_.experts.insert({{"limit", config_.number_or("swiglu_limit", 7, {1e-6, 1e6})},
                               {"alpha", config_.number_or("swiglu_alpha", 1.702, {1e-6, 1e6})}});
    const std::string usual = row.sigmoid ? "noaux_tc" : "greedy",
                      method = config_.text_or("topk_method", usual);
    const bool grouped = row.limits_groups && method == "group_limited_greedy";
    if (method != usual && !grouped) config_.fail("topk_method", "\"" + method + "\" is not built");
    const std::int64_t groups = config_.integer_or("n_group", row.groups, kCounts),
                       open = config_.integer_or("topk_group", row.open_groups, kCounts);
    if (row.sigmoid || grouped) decoder_.experts.insert({{"groups", groups}, {"groups_per_token", open}});
    if (row.dense_first) {
      const std::int64_t shared = config_.mentioned("n_shared_experts") ? 0 : row.shared;
      decoder_.shared_hidden = hidden * config_.integer_or("n_shared_experts", shared, {0, 1024});
    } else if (!row.shared_hidden.empty()) {
      decoder_.shared_hidden = config_.integer(row.shared_hidden, kCounts);
    }
    read_places_of_experts(row);
    refuse_balancing(row);
    // transformers does not train DeepSeek's losses.
    static constexpr std::array kUnread{"aux_loss_alpha"sv,
                                        "seq_aux"sv,
                                        "ep_size"sv,
                                        "num_mtp_layers"sv,
                                        "qk_head_dim"sv,
                                        "quantization_config"sv,
                                        "initial_context_length"sv,
                                        "experts_per_token"sv,
                                        "num_local_experts"sv,
                                        "head_dim"sv};
    config_.pass_over(kUnread);
  }

  /// What couples samples, or draws.
  void refuse_balancing(const ExpertsRow& row) {
    const bool loss = config_.boolean_or("output_router_logits", false);
    const double factor = config_.number_or("router_aux_loss_coef", 0.001, {0, 1e6});
    if (loss && factor > 0 && !row.dense_first)
      config_.fail("output_router_logits",
                   "adds a loss that balances the experts of all layers over all positions of a mini-batch, "
                   "which no micro-batch and no stage has together; set it to false" +
                       std::string(kLimits));
    if (config_.number_or("router_jitter_noise", 0, {0, 1}) > 0)
      config_.fail("router_jitter_noise", "noise in front of routers is not built; set it to 0");
  }

  /// Which blocks have experts: all behind the first dense ones, or every so many less those that are named.
  void read_places_of_experts(const ExpertsRow& row) {
    constexpr IntegerRange kBlocks{0, kMostBlocks};
    const std::int64_t dense =
        row.dense_first ? config_.integer_or("first_k_dense_replace", row.dense, kBlocks) : 0;
    if (config_.integer_or("moe_layer_freq", 1, {1, kMostBlocks}) != 1)
      config_.fail("moe_layer_freq", "must be 1; " + config_.who() + " is built only so");
    const std::int64_t step = config_.integer_or("decoder_sparse_step", 1, {1, kMostBlocks});
    std::vector<std::int64_t> without;
    if (config_.given("mlp_only_layers")) without = config_.integers("mlp_only_layers", kBlocks);
    const std::int64_t decoding = std::ssize(decoder_.blocks) - decoder_.predictions;
    for (std::int64_t i = 0; i < std::ssize(decoder_.blocks); ++i) {
      const std::int64_t place =
          i < decoding ? i : i - decoding + blocks_;  // also behind the first layers alone
      decoder_.blocks[static_cast<std::size_t>(i)].experts =
          place >= dense && (place + 1) % step == 0 && std::ranges::find(without, place) == without.end();
    }
  }

  /// Learned positions.
  void check_table() {
    if (decoder_.sequence > positions_) {
      throw Error(ErrorKind::usage, "sequence=" + std::to_string(decoder_.sequence) + " is above " +
                                        std::string(row_.keys.positions) + ", " + std::to_string(positions_) +
                                        ", the rows of its table");
    }
    decoder_.position_rows = positions_ + decoder_.position_offset;
  }

  void read_windows() {
    const bool behind = row_.windows == Windows::behind, unrotated = row_.windows == Windows::unrotated;
    const bool on = (!behind && !unrotated) || config_.boolean_or("use_sliding_window", false);
    const std::int64_t window = config_.integer_or(
        "sliding_window", config_.mentioned("sliding_window") ? 0 : row_.window, {0, std::int64_t{1} << 30});
    const std::int64_t first =
        behind ? config_.integer_or("max_window_layers", 28, {0, std::int64_t{1} << 30}) : 0;
    std::vector<std::string> types;
    if (row_.windows != Windows::all && config_.given("layer_types")) types = config_.texts("layer_types");
    check_types(types);
    for (std::size_t i = 0; i < decoder_.blocks.size(); ++i) {
      const bool slides = !types.empty()                       ? types[i] == "sliding_attention"
                          : row_.windows == Windows::alternate ? i % 2 == 0
                          : unrotated                          ? !decoder_.blocks[i].rotates
                                                               : static_cast<std::int64_t>(i) >= first;
      if (on && slides) decoder_.blocks[i].window = window;
    }
  }

  void check_types(const std::vector<std::string>& types) const {
    if (types.empty()) return;
    if (std::ssize(types) < std::ssize(decoder_.blocks))
      config_.fail("layer_types", "must have an entry for each of the " + std::to_string(blocks_) + " layers");
    for (const std::string& type : types) {
      if (type != "full_attention" && type != "sliding_attention")
        config_.fail("layer_types", "\"" + type + "\" is not built; use full_attention and sliding_attention");
    }
  }

  void read_biases() {
    for (const BiasKey& bias : row_.biases) {
      if (!bias.query && !bias.out && !bias.up) {
        config_.require(bias.key, bias.otherwise);
        continue;
      }
      const bool there = config_.boolean_or(bias.key, bias.otherwise);
      if (bias.query) decoder_.query_bias = there;
      if (bias.out) decoder_.out_bias = there;
      if (bias.up) decoder_.up_bias = there;
    }
  }

  /// The row of the embedding that transformers gives no gradient; it counts from the end where it is negative.
  void read_padding() {
    const std::int64_t most = decoder_.vocabulary - 1;
    if (!row_.pads) {
      config_.mentioned("pad_token_id");
      return;
    }
    if (config_.given("pad_token_id")) {
      const std::int64_t token = config_.integer("pad_token_id", {-decoder_.vocabulary, most});
      decoder_.padding = token < 0 ? token + decoder_.vocabulary : token;
    } else if (!config_.mentioned("pad_token_id") && row_.padding >= 0) {
      decoder_.padding = row_.padding;
      if (decoder_.padding > most) {
        config_.fail("pad_token_id", "is missing, and " + std::to_string(row_.padding) + ", which " +
                                         config_.who() +
                                         " takes then, is not below vocab_size; give it, or null");
      }
    }
  }

  ConfigReader config_;
  const DecoderRow& row_;
  const ConfigArguments& arguments_;
  Decoder decoder_;
  std::int64_t blocks_ = 0, positions_ = 0;
};

std::string model_name(std::string_view type, const ConfigArguments& arguments) {
  std::string name(type);
  char separator = ':';
  const auto add = [&](const char* key, const std::optional<std::int64_t>& value) {
    if (value) name += std::exchange(separator, ',') + std::string(key) + "=" + std::to_string(*value);
  };
  add("layers", arguments.layers);
  add("sequence", arguments.sequence);
  add("mtp", arguments.mtp);
  return name;
}

}  // namespace

bool is_hugging_face_config(const Json& json) {
  return json.is_object() && json.contains("model_type") && !json.contains("format");
}

ModelGraph build_hugging_face(const Json& given, std::string_view text) {
  const ConfigArguments arguments = parse_arguments(text);
  const Json& type = given["model_type"];
  if (!type.is_string()) throw Error(ErrorKind::data, "/model_type: must be a string");
  const DecoderRow* row = find_decoder_row(type.get<std::string>());
  if (row == nullptr) refuse_type(type.get<std::string>(), given);
  Json config = given;
  const auto silent = [&](const char* key) { return !config.contains(key) || config[key].is_null(); };
  if (!row->rope.empty() && silent("rope_scaling") && silent("rope_parameters"))
    config["rope_parameters"] = Json::parse(row->rope);
  const Decoder decoder = ConfigBuilder(config, *row, arguments).build();
  return resolve(build_decoder(GraphBuilder(model_name(row->type, arguments)), decoder)).graph;
}

}  // namespace pp::model
