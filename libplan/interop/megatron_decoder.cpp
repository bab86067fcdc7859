// A decoder in Megatron-LM's arguments: sizes, norms, positions, biases, latent attention, mixtures of experts.
#include <array>
#include <charconv>
#include <cmath>
#include <utility>
#include <variant>

#include "libplan/interop/decoder_shape.h"
#include "libplan/interop/megatron_model.h"

namespace pp::plan::detail {
namespace {

/// The shortest text that reads as the same number: `1e-05`, `0.1`.
std::string number_text(double value) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

class Arguments {
 public:
  void flag(const std::string& name) { model_.arguments += "--" + name + "\n"; }
  void set(const std::string& name, const std::string& value) { flag(name + " " + value); }
  void set(const std::string& name, std::int64_t value) { set(name, std::to_string(value)); }
  void set_if_known(const std::string& name, std::int64_t value) {
    if (value > 0) set(name, value);
  }
  void unsaid(std::string what) { model_.unsaid.push_back(std::move(what)); }
  MegatronModel take() && { return std::move(model_); }

 private:
  MegatronModel model_;
};

void add_sizes(Arguments& out, const LanguageSizes& sizes, const DecoderShape& shape) {
  out.set_if_known("seq-length", sizes.sequence);
  out.set_if_known("max-position-embeddings", shape.position_rows > 0 ? shape.position_rows : sizes.sequence);
  out.set_if_known("hidden-size", sizes.width);
  out.set_if_known("ffn-hidden-size", sizes.feed_forward);
  out.set_if_known("num-attention-heads", sizes.heads);
  if (shape.latent.keys == 0 && shape.head_width > 0 && shape.head_width * sizes.heads != sizes.width)
    out.set("kv-channels", shape.head_width);
  if (sizes.key_value_heads > 0 && sizes.key_value_heads != sizes.heads) {
    out.flag("group-query-attention");
    out.set("num-query-groups", sizes.key_value_heads);
  }
  if (!sizes.tied) out.flag("untie-embeddings-and-output-weights");
}

/// `([0]*3+[1]*58)`: which blocks have experts, where not all have.
std::string layer_frequency(const BlockRow& row) {
  std::string text;
  for (auto next = row.mixtures.begin(); next != row.mixtures.end();) {
    const auto end = std::find(next, row.mixtures.end(), !*next);
    text += (text.empty() ? "([" : "+[") + std::to_string(int(*next)) + "]*" + std::to_string(end - next);
    next = end;
  }
  return text + ")";
}

void add_experts(Arguments& out, const LanguageSizes& sizes, const BlockRow& row, const ExpertsShape& experts) {
  out.set("num-experts", experts.count);
  out.set("moe-router-topk", experts.per_token);
  out.set("moe-ffn-hidden-size", sizes.expert_hidden);
  out.flag("moe-grouped-gemm");
  if (row.has(false)) out.set("moe-layer-freq", layer_frequency(row));
  out.set_if_known("moe-shared-expert-intermediate-size", experts.shared_hidden);
  if (experts.sigmoid) out.set("moe-router-score-function", "sigmoid");
  if (!experts.sigmoid && !experts.normalised) out.flag("moe-router-pre-softmax");
  if (experts.correction) out.flag("moe-router-enable-expert-bias");
  if (experts.groups > 1) {
    out.set("moe-router-num-groups", experts.groups);
    out.set("moe-router-group-topk", experts.groups_per_token);
  }
  if (experts.factor != 1) out.set("moe-router-topk-scaling-factor", number_text(experts.factor));
  out.set("moe-router-dtype", "fp32");
  out.unsaid("how the load of experts is balanced (--moe-router-load-balancing-type, --moe-aux-loss-coeff)");
}

/// Norms of the narrow vectors are those of --qk-layernorm.
void add_latent_attention(Arguments& out, const DecoderShape& shape) {
  const LatentShape& latent = shape.latent;
  out.flag("multi-latent-attention");
  out.set_if_known("q-lora-rank", latent.queries);
  out.set("kv-lora-rank", latent.keys);
  out.set("qk-head-dim", latent.straight);
  out.set("qk-pos-emb-head-dim", latent.rotated);
  out.set("v-head-dim", latent.values);
  out.flag("qk-layernorm");
  if (shape.rotary_scaling == RotaryScaling::none) return out.set("rope-type", "rope");
  out.set("rope-type", "yarn");
  out.set("rotary-scaling-factor", number_text(shape.rotary_factor));
  // The scale is (0.1 m ln(factor) + 1)^2 / sqrt(width of a head).
  const double magnitude = std::sqrt(latent.scale * std::sqrt(static_cast<double>(shape.head_width)));
  const double m = latent.scale > 0 ? (magnitude - 1) / (0.1 * std::log(shape.rotary_factor)) : 0;
  for (const char* const name : {"mscale", "mscale-all-dim"})
    out.set(name, number_text(std::round(m * 1e6) / 1e6));
}

void add_norms(Arguments& out, const DecoderShape& shape) {
  out.set("normalization", shape.layer_norm ? "LayerNorm" : "RMSNorm");
  out.set("norm-epsilon", number_text(shape.norm_eps));
  if (shape.norm_offset == 1) out.flag("apply-layernorm-1p");
  if (shape.norm_offset != 0 && shape.norm_offset != 1)
    out.unsaid("weights of norms have an offset of " + number_text(shape.norm_offset));
  if (shape.head_norms) out.flag("qk-layernorm");
}

/// Without a flag it is GELU.
void add_feed_forward(Arguments& out, const DecoderShape& shape) {
  if (shape.gated && shape.activation == GateActivation::silu) return out.flag("swiglu");
  if (!shape.gated && shape.activation == GateActivation::gelu) return;
  out.unsaid("the activation is " + std::string(name_of(shape.activation)) +
             (shape.gated ? " with a gate" : "") + ", and it has gelu, and silu with a gate");
}

void add_rotation(Arguments& out, const DecoderShape& shape) {
  out.set("position-embedding-type", "rope");
  if (shape.latent.keys > 0) add_latent_attention(out, shape);
  if (shape.rotary_base == std::floor(shape.rotary_base)) {
    out.set("rotary-base", static_cast<std::int64_t>(shape.rotary_base));
  } else {
    out.unsaid("the rotary base is " + number_text(shape.rotary_base) + ", no whole number");
  }
  if (shape.latent.keys > 0) return;
  if (shape.rotary_dim != shape.head_width)
    out.set("rotary-percent",
            number_text(static_cast<double>(shape.rotary_dim) / static_cast<double>(shape.head_width)));
  if (shape.rotary_scaling == RotaryScaling::llama3 && shape.usual_scaling) {
    out.flag("use-rope-scaling");
    out.set("rope-scaling-factor", number_text(shape.rotary_factor));
  } else if (shape.rotary_scaling != RotaryScaling::none) {
    out.unsaid("rotary positions are scaled (" + std::string(name_of(shape.rotary_scaling)) +
               "), and it has the scaling of Llama 3.1 for 8,192 positions");
  }
}

void add_positions(Arguments& out, const DecoderShape& shape) {
  if (shape.rotary_dim > 0 && shape.position_rows > 0)
    out.unsaid("it has learned positions and rotary ones, of which it has one kind");
  if (shape.rotary_dim > 0) return add_rotation(out, shape);
  out.set("position-embedding-type", shape.position_rows > 0 ? "learned_absolute" : "none");
}

void add_biases(Arguments& out, const DecoderShape& shape) {
  if (shape.out_bias != shape.feed_forward_bias || (shape.out_bias && !shape.qkv_bias))
    out.unsaid(
        "some products have a bias, and it has biases everywhere, on queries, keys and values, or nowhere");
  if (shape.out_bias && shape.feed_forward_bias) return;
  out.flag("disable-bias-linear");
  if (shape.qkv_bias) out.flag("add-qkv-bias");
}

void add_architecture(Arguments& out, const LanguageSizes& sizes, const DecoderShape& shape) {
  add_norms(out, shape);
  add_feed_forward(out, shape);
  add_positions(out, shape);
  add_biases(out, shape);
  // A window as long as the sequence hides nothing. Its numbers are positions to the left and to the right.
  if (shape.window > 0 && (sizes.sequence == 0 || shape.window < sizes.sequence))
    out.set("window-size", std::to_string(shape.window - 1) + ",0");
  out.set("attention-dropout", number_text(shape.attention_dropout));
  out.set("hidden-dropout", number_text(shape.hidden_dropout));
}

}  // namespace

MegatronModel megatron_model(const ResolvedModel& model, const BlockRow& row) {
  Arguments out;
  const LanguageSizes sizes = language_sizes(model, row);
  const auto read = decoder_shape(model, row);
  const auto* shape = std::get_if<DecoderShape>(&read);
  add_sizes(out, sizes, shape == nullptr ? DecoderShape() : *shape);
  if (shape == nullptr) {
    out.unsaid("norms, feed-forward network, positions, biases, dropout: " + std::get<std::string>(read));
  } else {
    if (shape->experts.count > 0) add_experts(out, sizes, row, shape->experts);
    add_architecture(out, sizes, *shape);
  }
  return std::move(out).take();
}

}  // namespace pp::plan::detail
