#include "libprofile/model/families/decoder.h"

#include <array>
#include <cmath>
#include <utility>

namespace pp::model {
namespace {

/// Adds the layers of one decoder, from the tokens to the logits.
class DecoderBuilder {
 public:
  DecoderBuilder(GraphBuilder& builder, const Decoder& decoder) : builder_(builder), d_(decoder) {
    builder_.start_at(d_.std);
  }

  std::string embedded(const std::string& tokens) {
    const std::int64_t width = d_.embedding_width > 0 ? d_.embedding_width : d_.width;
    std::string x = builder_.embedding(d_.names.embedding, tokens, d_.vocabulary, width);
    if (d_.padding >= 0) builder_.last().attributes.emplace("padding_idx", d_.padding);
    if (d_.embedding_scale != 1)
      x = builder_.add(d_.names.embedding_scale, "scale", {x}, {{"factor", d_.embedding_scale}});
    if (d_.embedding_width > 0) x = builder_.linear("model.decoder.project_in", x, d_.width, false);
    if (d_.position_rows > 0) {
      x = builder_.add(d_.names.positions, "position_embedding", {x},
                       {{"num_embeddings", d_.position_rows}, {"offset", d_.position_offset}});
    }
    return builder_.dropout("embedding_dropout", x, d_.embedding_dropout);
  }

  std::string block(std::size_t number, const std::string& x) {
    prefix_ = d_.names.blocks + "." + std::to_string(number) + ".";
    return body(number, x);
  }

  /// A block that predicts `tokens`' successors from what stands behind the last norm in front of it. It has an
  /// embedding of its own, as checkpoints do: trainers keep it equal to the model's.
  std::string prediction(std::size_t number, const std::string& tokens, const std::string& hidden) {
    prefix_ = d_.names.blocks + "." + std::to_string(number) + ".";
    std::string x = builder_.embedding(prefix_ + "embed_tokens", tokens, d_.vocabulary, d_.width);
    if (d_.padding >= 0) builder_.last().attributes.emplace("padding_idx", d_.padding);
    x = norm("enorm", x);
    x = builder_.add(prefix_ + "joined", "concat", {x, norm("hnorm", hidden)}, {{"dim", std::int64_t{1}}});
    x = body(number, builder_.linear(prefix_ + "eh_proj", x, d_.width, false));
    return norm("shared_head.norm", x);
  }

  std::string last_norm(const std::string& x) {
    prefix_.clear();
    return d_.last_norm ? norm(d_.names.norm, x) : x;
  }

  std::string logits(std::string x) {
    if (d_.embedding_width > 0) x = builder_.linear("model.decoder.project_out", x, d_.embedding_width, false);
    x = builder_.linear(d_.names.head, x, d_.vocabulary, false);
    builder_.share_weights(d_.names.embedding, d_.tied);
    return d_.logit_cap > 0 ? builder_.add("logits", "soft_cap", {x}, {{"cap", d_.logit_cap}}) : x;
  }

 private:
  std::string body(std::size_t number, const std::string& x) {
    if (d_.parallel) {
      const std::string mixed = attention(d_.blocks[number], norm(d_.names.norm1, x));
      const std::string other = feed_forward(d_.blocks[number], norm(d_.names.norm2, x));
      return builder_.add(prefix_ + "residual", "add", {other, mixed, x});
    }
    const std::string sum = branch("residual1", x, d_.names.norm1, d_.names.post_norm1,
                                   [&](const std::string& y) { return attention(d_.blocks[number], y); });
    return branch("residual2", sum, d_.names.norm2, d_.names.post_norm2,
                  [&](const std::string& y) { return feed_forward(d_.blocks[number], y); });
  }

  std::string norm(const std::string& name, const std::string& x) {
    if (d_.layer_norm) return builder_.add(prefix_ + name, "layer_norm", {x}, {{"eps", d_.eps}});
    return builder_.add(prefix_ + name, "rms_norm", {x}, {{"eps", d_.eps}, {"offset", d_.norm_offset}});
  }

  /// x + body(x), with its norms where the family has them.
  template <class Body>
  std::string branch(const std::string& sum, const std::string& x, const std::string& norm_name,
                     const std::string& post_norm, Body&& body) {
    std::string y = body(d_.norms == NormPlace::after ? x : norm(norm_name, x));
    if (d_.norms == NormPlace::around) y = norm(post_norm, y);
    y = builder_.add(prefix_ + sum, "add", {x, y});
    return d_.norms == NormPlace::after ? norm(norm_name, y) : y;
  }

  std::string attention(const DecoderBlock& block, const std::string& x) {
    if (d_.latent.keys > 0) return latent_attention(x);
    const DecoderNames& names = d_.names;
    const std::string name = prefix_ + names.attention, inside = name + ".";
    const std::int64_t queries = d_.heads * d_.head_width, keys = d_.groups * d_.head_width;
    std::vector<std::string> inputs;
    if (d_.packed) {
      inputs = {builder_.linear(inside + names.packed, x, queries + 2 * keys, d_.query_bias)};
    } else {
      inputs = {builder_.linear(inside + names.query, x, queries, d_.query_bias),
                builder_.linear(inside + names.key, x, keys, d_.query_bias),
                builder_.linear(inside + names.value, x, keys, d_.query_bias)};
    }
    Attributes attributes = d_.attention;
    attributes.insert_or_assign("num_heads", d_.heads);
    attributes.insert_or_assign("num_key_value_heads", d_.groups);
    if (block.window > 0) attributes.insert_or_assign("sliding_window", block.window);
    if (attributes.contains("sinks")) attributes.emplace("sinks_std", d_.std);
    if (!block.rotates) attributes.insert_or_assign("rotary_dim", std::int64_t{0});
    std::string y = builder_.add(name, "grouped_query_attention", inputs, std::move(attributes));
    y = to_residual(inside + names.out, y, d_.out_bias);
    return builder_.dropout(prefix_ + "dropout1", y, d_.residual_dropout);
  }

  /// The projection whose result is added to the block's input.
  std::string to_residual(const std::string& name, const std::string& x, bool bias) {
    const std::string y = builder_.linear(name, x, d_.width, bias);
    if (d_.scaled_residuals)
      builder_.last().attributes.insert_or_assign(
          "std", d_.std / std::sqrt(2.0 * static_cast<double>(d_.blocks.size())));
    return y;
  }

  std::string latent_attention(const std::string& x) {
    const LatentAttention& latent = d_.latent;
    const std::string name = prefix_ + d_.names.attention, inside = name + ".";
    const std::int64_t straight = d_.heads * latent.straight;
    std::string query = x;
    if (latent.queries > 0) {
      query = builder_.linear(inside + "q_a_proj", x, latent.queries, d_.query_bias);
      query = norm(d_.names.attention + ".q_a_layernorm", query);
    }
    query = builder_.linear(inside + (latent.queries > 0 ? "q_b_proj" : "q_proj"), query,
                            straight + d_.heads * latent.rotated, false);
    const std::int64_t all = latent.keys + latent.rotated;
    const std::string both = builder_.linear(inside + "kv_a_proj_with_mqa", x, all, d_.query_bias);
    const auto part = [&](const char* what, std::int64_t begin, std::int64_t end) {
      return builder_.add(inside + what, "slice", {both},
                          {{"dim", std::int64_t{1}}, {"start", begin}, {"end", end}});
    };
    std::string keys = norm(d_.names.attention + ".kv_a_layernorm", part("latent", 0, latent.keys));
    keys = builder_.linear(inside + "kv_b_proj", keys, straight + d_.heads * latent.values, false);
    Attributes attributes = d_.attention;
    attributes.insert({{"num_heads", d_.heads}, {"packing", "latent"}});
    const std::string y = builder_.add(name, "grouped_query_attention",
                                       {query, keys, part("rotated", latent.keys, all)}, attributes);
    return to_residual(inside + d_.names.out, y, d_.out_bias);
  }

  std::string feed_forward(const DecoderBlock& block, const std::string& x) {
    return block.experts ? experts(x) : perceptron(x);
  }

  std::string experts(const std::string& x) {
    const DecoderNames& names = d_.names;
    const std::string inside = prefix_ + names.shared + ".";
    const std::string y = builder_.add(prefix_ + names.experts, "mixture_of_experts", {x}, d_.experts);
    if (d_.shared_hidden == 0) return y;
    std::string shared =
        gated(x, {inside + "gate_proj", inside + "up_proj", inside + "act_fn"}, d_.shared_hidden);
    shared = to_residual(inside + "down_proj", shared, false);
    if (!names.shared_gate.empty()) {
      std::string share = builder_.linear(prefix_ + names.shared_gate, x, 1, false);
      share = builder_.add(prefix_ + names.shared_gate + "_share", "sigmoid", {share});
      shared = builder_.add(inside + "gated", "multiply", {shared, share});
    }
    return builder_.add(prefix_ + "experts_sum", "add", {y, shared});
  }

  std::string perceptron(const std::string& x) {
    const DecoderNames& names = d_.names;
    std::string y =
        d_.gated ? gated(x, {prefix_ + names.gate, prefix_ + names.up, prefix_ + names.activation}, d_.hidden)
                 : plain(x);
    y = to_residual(prefix_ + names.down, y, d_.up_bias);
    return builder_.dropout(prefix_ + "dropout2", y, d_.residual_dropout);
  }

  /// `names`: of gate, upward projection and activation.
  std::string gated(const std::string& x, const std::array<std::string, 3>& names, std::int64_t hidden) {
    std::vector<std::string> inputs{builder_.linear(names[0], x, d_.packed ? 2 * hidden : hidden, d_.up_bias)};
    if (!d_.packed) inputs.push_back(builder_.linear(names[1], x, hidden, d_.up_bias));
    return builder_.add(names[2], "gated_activation", inputs, {{"activation", d_.activation}});
  }

  std::string plain(const std::string& x) {
    const std::string y = builder_.linear(prefix_ + d_.names.up, x, d_.hidden, d_.up_bias);
    const bool by_tanh = d_.activation == "gelu_tanh";
    return builder_.add(prefix_ + d_.names.activation, by_tanh ? "gelu" : d_.activation, {y},
                        by_tanh ? Attributes{{"tanh", true}} : Attributes{});
  }

  GraphBuilder& builder_;
  const Decoder& d_;
  std::string prefix_;
};

}  // namespace

ModelGraph build_decoder(GraphBuilder builder, const Decoder& decoder) {
  DecoderBuilder layers(builder, decoder);
  std::string x = layers.embedded(builder.input("tokens", {{decoder.sequence}, DType::int64}));
  const std::size_t blocks = decoder.blocks.size() - static_cast<std::size_t>(decoder.predictions);
  for (std::size_t i = 0; i < blocks; ++i) x = layers.block(i, x);
  x = layers.last_norm(x);
  std::vector<std::string> predicted{x};
  for (std::size_t i = blocks; i < decoder.blocks.size(); ++i) {
    const std::string name = "tokens_" + std::to_string(predicted.size());
    const std::string tokens = builder.input(name, {{decoder.sequence}, DType::int64});
    predicted.push_back(layers.prediction(i, tokens, predicted.back()));
  }
  if (predicted.size() > 1) x = builder.add("predictions", "concat", predicted, {{"dim", std::int64_t{0}}});
  return std::move(builder).classify(layers.logits(x), {decoder.sequence * std::ssize(predicted)});
}

}  // namespace pp::model
