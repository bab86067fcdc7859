// Rows of tables: of indices, and of positions.
#include <string>

#include "libprofile/core/error.h"
#include "libprofile/core/ops/rows.h"

namespace pp::detail {
namespace {

OpResult infer_embedding(const Attributes& attributes, std::span<const TensorType> inputs) {
  if (inputs[0].dtype != DType::int64) refuse_input(0, inputs[0], "int64 indices");
  const std::int64_t width = integer(attributes, "embedding_dim");
  TensorType output{inputs[0].shape, DType::float32};
  output.shape.push_back(width);
  return {{output}, {{"weight", {integer(attributes, "num_embeddings"), width}}}, {}, {}};
}

/// Of the indices: the table has so many rows.
std::int64_t table_rows(const Attributes& attributes, std::span<const TensorType>, std::size_t) {
  return integer(attributes, "num_embeddings");
}

OpResult infer_position_embedding(const Attributes& attributes, std::span<const TensorType> inputs) {
  const std::int64_t needed = inputs[0].shape[0] + integer(attributes, "offset");
  const std::int64_t asked = integer(attributes, "num_embeddings");
  if (asked > 0 && asked < needed) {
    throw Error(ErrorKind::data, "num_embeddings " + std::to_string(asked) +
                                     " must be at least positions + offset, " + std::to_string(needed) +
                                     "; use fewer positions");
  }
  return {{inputs[0]},
          {{"weight", {asked > 0 ? asked : needed, inputs[0].shape[1]}}},
          {},
          Flops(elements(inputs[0]))};
}

/// The table of sines is counted as given.
OpResult infer_position_encoding(const Attributes&, std::span<const TensorType> inputs) {
  if (inputs[0].shape[1] % 2 != 0)
    refuse_input(0, inputs[0], "an even width, a sine and a cosine per frequency");
  return {{inputs[0]}, {}, {}, Flops(elements(inputs[0]))};
}

}  // namespace

std::vector<OpRow> embedding_ops() {
  return {
      {.name = "embedding",
       .summary = "row of a table for each int64 index",
       .shapes = "int64 [...] -> [..., embedding_dim]; dropout takes whole rows of the table",
       .flops = "0",
       .examples = {"int64:7 num_embeddings=5 embedding_dim=3",
                    "int64:7 num_embeddings=5 embedding_dim=3 dropout=0.4"},
       .input = kAny,
       .attributes = {required_integer("num_embeddings", 1, 1 << 30, "rows of the table"),
                      required_integer("embedding_dim", 1, kMaxSize, "width of a row"),
                      probability_attribute("dropout", 0.0,
                                            "probability, on whole rows of the table, in training"),
                      silent(integer_attribute("padding_idx", -1, -1, 1 << 30,
                                               "row that gets no gradient here; -1: none")),
                      std_attribute()},
       .draws = true,
       .positions = Positions::apart,
       .tensor = TensorSplit::table,
       .index_limit = table_rows,
       .work = {.keeps = OpWork::Keeps::inputs},
       .infer = infer_embedding},
      {.name = "position_embedding",
       .summary = "adds a learned vector per position",
       .shapes = "[l, d] -> the same, plus row p + offset of a learned table for position p",
       .flops = "1 per element",
       .examples = {"3x4", "3x4 num_embeddings=9 offset=2"},
       .input = kSequence,
       .attributes = {silent(integer_attribute("num_embeddings", 0, 0, 1 << 30,
                                               "rows of the table; 0: as many as are used")),
                      silent(integer_attribute("offset", 0, 0, kMaxSize, "row of the first position")),
                      std_attribute()},
       .positions = Positions::apart,
       .tensor = TensorSplit::positions,
       .work = {.passes_gradients = true},
       .infer = infer_position_embedding},
      {.name = "position_encoding",
       .summary = "adds sines and cosines of the position",
       .shapes = "[l, d] -> the same, plus sines and cosines of the position",
       .flops = "1 per element",
       .examples = {"3x4"},
       .input = kSequence,
       .tensor = TensorSplit::positions,
       .work = {.passes_gradients = true},
       .infer = infer_position_encoding},
  };
}

}  // namespace pp::detail
