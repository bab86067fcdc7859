#include "libplan/interop/decoder_shape.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "libprofile/core/ops/op_table.h"

namespace pp::plan::detail {
namespace {

/// Why the layers are no such decoder.
struct OtherForm {
  std::string why;
};

/// Goes through the layers of a decoder and notes what they say. Throws OtherForm.
class DecoderReader {
 public:
  DecoderReader(const ResolvedModel& model, const BlockRow& row) : model_(model), row_(row) {}

  DecoderShape read() {
    read_front();
    check_blocks_alike();
    for (const bool mixture : {false, true})
      if (row_.has(mixture)) read_block(row_.first(mixture));
    next_ = row_.end, end_ = model_.layers.size();
    read_norm();
    for (const Block& prediction : row_.predictions) read_prediction(prediction);
    if (!row_.predictions.empty()) take("concat");
    take("linear");
    if (next_ != end_) fail("nothing is expected behind the head");
    if (!same_dropout_) throw OtherForm{"its layers have several rates of dropout"};
    return shape_;
  }

 private:
  [[noreturn]] void fail(const std::string& expected) const {
    if (next_ >= end_) throw OtherForm{"after the last layer: " + expected};
    const Layer& layer = model_.graph.layers[next_];
    throw OtherForm{layer.name + ", " + layer.op + ": " + expected};
  }

  const Layer* peek(const std::string& op) const {
    if (next_ >= end_ || model_.graph.layers[next_].op != op) return nullptr;
    return &model_.graph.layers[next_];
  }
  const Layer* take_if(const std::string& op) {
    const Layer* layer = peek(op);
    if (layer != nullptr) ++next_;
    return layer;
  }
  const Layer& take(const std::string& op) {
    const Layer* layer = take_if(op);
    if (layer == nullptr) fail(op + " is expected there");
    return *layer;
  }

  void note_dropout(double p) {
    same_dropout_ = same_dropout_ && (!dropout_ || *dropout_ == p);
    dropout_ = p;
    shape_.hidden_dropout = p;
  }
  /// Where none stands a rate of 0 does.
  void read_dropout() {
    const Layer* dropout = take_if("dropout");
    note_dropout(dropout == nullptr ? 0 : number(dropout->attributes, "p"));
  }

  void read_front() {
    end_ = row_.begins.front();
    const Layer& embedding = take("embedding");
    if (number(embedding.attributes, "dropout") > 0) fail("dropout of whole words is not expected before it");
    if (const Layer* positions = take_if("position_embedding"))
      shape_.position_rows = model_.layers[layer_of(*positions)].parameters.front().shape.front();
    read_dropout();
    if (next_ != end_) fail("a block is expected there");
  }
  std::size_t layer_of(const Layer& layer) const {
    return static_cast<std::size_t>(&layer - model_.graph.layers.data());
  }

  /// Attributes, too, of which block_row_of() knows nothing: windows, rotations.
  void check_blocks_alike() const {
    for (std::size_t b = 0; b < row_.begins.size(); ++b) {
      const std::size_t begin = row_.begins[row_.first(row_.mixtures[b])];
      for (std::size_t l = row_.begins[b]; l < row_.end_of(b); ++l) {
        const Layer& first = model_.graph.layers[l - row_.begins[b] + begin];
        const Layer& other = model_.graph.layers[l];
        if (first.attributes != other.attributes)
          throw OtherForm{first.name + " and " + other.name + " have other attributes"};
      }
    }
  }

  /// As DecoderBuilder::prediction() writes it: norms of both inputs, their product, a block of the row, a
  /// norm.
  void read_prediction(const Block& block) {
    if (next_ != static_cast<std::size_t>(block.begin)) fail("multi-token prediction is expected there");
    take("embedding");
    read_norm();
    read_norm();
    take("concat");
    take("linear");
    const std::size_t last = row_.begins.back();
    for (std::size_t l = last; l < row_.end; ++l) {
      const Layer& other = model_.graph.layers[l];
      if (take(other.op).attributes != other.attributes)
        throw OtherForm{other.name + " and " + model_.graph.layers[next_ - 1].name + " have other attributes"};
    }
    read_norm();
  }

  void read_block(std::size_t block) {
    next_ = row_.begins[block], end_ = row_.end_of(block);
    read_norm();
    const DecoderShape before = shape_;
    if (const Layer* attention = take_if("multi_head_attention")) {
      read_whole_attention(*attention);
    } else if (is_latent()) {
      read_latent_attention();
    } else {
      read_projected_attention();
    }
    if (before.head_width > 0 && shape_ != before)
      fail("attention is expected to be as in the other blocks before it");
    read_dropout();
    read_sum();
    read_norm();
    read_feed_forward();
    read_dropout();
    read_sum();
    if (next_ != end_) fail("the block is expected to end there");
  }

  bool is_latent() const {
    for (std::size_t l = next_; l < end_; ++l) {
      const Layer& layer = model_.graph.layers[l];
      if (layer.attributes.contains("packing"))
        return choice<HeadPacking>(layer.attributes, "packing") == HeadPacking::latent;
    }
    return false;
  }

  std::int64_t width_of(const Layer& layer) const {
    return model_.layers[layer_of(layer)].outputs.front().shape.back();
  }

  /// As DecoderBuilder::latent_attention() writes it.
  void read_latent_attention() {
    const Layer* query = &take("linear");
    LatentShape latent;
    if (peek("rms_norm") != nullptr) {
      latent.queries = width_of(*query);
      read_norm();
      query = &take("linear");
    }
    take("linear");
    latent.keys = width_of(take("slice"));
    read_norm();
    const Layer& keys = take("linear");
    latent.rotated = width_of(take("slice"));
    const Layer& attention = take("grouped_query_attention");
    const std::int64_t heads = integer(attention.attributes, "num_heads");
    latent.straight = width_of(*query) / heads - latent.rotated;
    latent.values = width_of(keys) / heads - latent.straight;
    latent.scale = number(attention.attributes, "scale");
    read_rotation(attention);
    shape_.latent = latent;
    shape_.head_width = latent.straight + latent.rotated;
    shape_.out_bias = boolean(take("linear").attributes, "bias");
  }

  /// All norms alike.
  void read_norm() {
    const Layer* norm = take_if("layer_norm");
    DecoderShape seen = shape_;
    seen.layer_norm = norm != nullptr;
    if (norm == nullptr) norm = take_if("rms_norm");
    if (norm == nullptr) fail("a norm is expected there");
    seen.norm_eps = number(norm->attributes, "eps");
    seen.norm_offset = seen.layer_norm ? 0 : number(norm->attributes, "offset");
    if (norms_++ > 0 && seen != shape_) throw OtherForm{norm->name + " is another norm than the first"};
    shape_ = seen;
  }

  void read_sum() {
    if (take("add").inputs.size() != 2) throw OtherForm{"a sum of more than a layer's input and output"};
  }

  /// Its projections are inside.
  void read_whole_attention(const Layer& layer) {
    const Attributes& said = layer.attributes;
    const auto place = layer_of(layer);
    const std::int64_t width = model_.layers[place].inputs.front().shape.back();
    if (!boolean(said, "causal")) throw OtherForm{layer.name + " sees later positions"};
    if (!boolean(said, "scaled") || model_.layers[place].inputs.size() > 1)
      throw OtherForm{layer.name + " has relative positions, or scores that are not scaled"};
    shape_.qkv_bias = shape_.out_bias = boolean(said, "bias");
    shape_.head_width = width / integer(said, "num_heads");
    shape_.attention_dropout = number(said, "dropout");
  }

  void read_projected_attention() {
    const Layer& query = take("linear");
    shape_.qkv_bias = boolean(query.attributes, "bias");
    int projections = 1;
    while (const Layer* other = take_if("linear")) {
      if (boolean(other->attributes, "bias") != shape_.qkv_bias)
        throw OtherForm{other->name + " and " + query.name + ": one of them has a bias"};
      ++projections;
    }
    if (projections != 1 && projections != 3) fail("queries, keys and values are expected before it");
    const Layer& attention = take("grouped_query_attention");
    read_attention(attention, projections);
    shape_.out_bias = boolean(take("linear").attributes, "bias");
  }

  void read_attention(const Layer& layer, int projections) {
    const Attributes& said = layer.attributes;
    if (!boolean(said, "causal")) throw OtherForm{layer.name + " sees later positions"};
    if (number(said, "soft_cap") > 0) throw OtherForm{layer.name + " caps its scores"};
    if (number(said, "scale") > 0) throw OtherForm{layer.name + " has a scale of its own"};
    if (boolean(said, "rotary_interleaved") || integer(said, "rotary_exponent_dim") > 0)
      throw OtherForm{layer.name + " turns other pairs than the halves of a head"};
    const std::int64_t heads = integer(said, "num_heads"), groups = integer(said, "num_key_value_heads");
    const std::int64_t width = model_.layers[layer_of(layer)].inputs.front().shape.back();
    shape_.head_width = width / (projections == 1 ? heads + 2 * groups : heads);
    shape_.attention_dropout = number(said, "dropout");
    shape_.head_norms = boolean(said, "norms");
    read_rotation(layer);
  }

  void read_rotation(const Layer& layer) {
    const Attributes& said = layer.attributes;
    if (!boolean(said, "causal")) throw OtherForm{layer.name + " sees later positions"};
    shape_.window = integer(said, "sliding_window");
    shape_.rotary_dim = integer(said, "rotary_dim");
    if (shape_.rotary_dim == 0) return;
    shape_.rotary_base = number(said, "rotary_base");
    shape_.rotary_scaling = choice<RotaryScaling>(said, "rotary_scaling");
    shape_.rotary_factor = number(said, "rotary_factor");
    if (shape_.rotary_scaling == RotaryScaling::llama3)
      shape_.usual_scaling = number(said, "rotary_low_freq_factor") == 1 &&
                             number(said, "rotary_high_freq_factor") == 4 &&
                             integer(said, "rotary_original_length") == 8192;
  }

  /// Than the attribute's default.
  static bool is_other(const Layer& layer, std::string_view attribute) {
    const std::vector<AttributeSpec>& specs = find_op(layer.op)->attributes;
    return layer.attributes.find(attribute)->second !=
           std::ranges::find(specs, attribute, &AttributeSpec::name)->default_value;
  }

  void read_experts(const Layer& layer) {
    const Attributes& said = layer.attributes;
    shape_.gated = true;
    shape_.activation = choice<GateActivation>(said, "activation");
    shape_.experts = {.count = integer(said, "num_experts"),
                      .per_token = integer(said, "experts_per_token"),
                      .sigmoid = is_other(layer, "scores"),
                      .normalised = boolean(said, "normalised"),
                      .correction = boolean(said, "correction"),
                      .groups = integer(said, "groups"),
                      .groups_per_token = integer(said, "groups_per_token"),
                      .factor = number(said, "factor")};
    if (boolean(said, "bias") || number(said, "limit") > 0)
      throw OtherForm{layer.name + " has biases or clamped gates"};
    if (shape_.experts.sigmoid && !shape_.experts.normalised)
      throw OtherForm{layer.name + " has scores by sigmoid that do not add up to 1"};
    if (peek("linear") == nullptr) return;
    const bool bias = shape_.feed_forward_bias;
    shape_.experts.shared_hidden = read_perceptron();
    if (shape_.feed_forward_bias != bias)
      throw OtherForm{layer.name + " has no biases, and the perceptron beside it has"};
    read_sum();
  }

  void read_feed_forward() {
    if (const Layer* mixture = take_if("mixture_of_experts")) return read_experts(*mixture);
    read_perceptron();
  }

  /// What its last product reads.
  std::int64_t read_perceptron() {
    const Layer& up = take("linear");
    const Layer* gate = take_if("linear");
    shape_.feed_forward_bias = boolean(up.attributes, "bias");
    std::optional<GateActivation> activation;
    if (const Layer* gated = take_if("gated_activation")) {
      shape_.gated = true;
      activation = choice<GateActivation>(gated->attributes, "activation");
    } else if (gate == nullptr) {
      for (const auto& [value, op] : EnumNames<GateActivation>::table)
        if (!activation && take_if(std::string(op)) != nullptr) activation = value;
    }
    if (!activation) fail("an activation is expected there");
    shape_.activation = *activation == GateActivation::gelu_tanh ? GateActivation::gelu : *activation;
    const Layer& down = take("linear");
    for (const Layer* other : {gate, &down}) {
      if (other != nullptr && boolean(other->attributes, "bias") != shape_.feed_forward_bias)
        throw OtherForm{other->name + " and " + up.name + ": one of them has a bias"};
    }
    return model_.layers[layer_of(down)].inputs.front().shape.back();
  }

  const ResolvedModel& model_;
  const BlockRow& row_;
  DecoderShape shape_;
  std::size_t next_ = 0, end_ = 0;
  int norms_ = 0;
  bool same_dropout_ = true;
  std::optional<double> dropout_;
};

}  // namespace

std::variant<DecoderShape, std::string> decoder_shape(const ResolvedModel& model, const BlockRow& row) {
  try {
    return DecoderReader(model, row).read();
  } catch (const OtherForm& other) {
    return other.why;
  }
}

}  // namespace pp::plan::detail
