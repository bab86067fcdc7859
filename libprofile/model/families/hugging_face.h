// Hugging Face's config.json as a model: decoders of the families that decoder.h describes. Every key that
// changes what the model computes is read, with the default that transformers 5 gives it, or refused by its
// name; parameters have the names of the published tensors.
#pragma once

#include <string_view>

#include "libprofile/core/json_reader.h"
#include "libprofile/core/model/model_graph.h"

namespace pp::model {

/// An object with a "model_type" and no "format".
bool is_hugging_face_config(const Json& json);

/// Key of the number of blocks that predict further tokens.
inline constexpr std::string_view kPredictionsKey = "num_nextn_predict_layers";

/// `arguments`: `sequence=512,layers=4,mtp=1`, any or none. sequence: positions, by default
/// max_position_embeddings, at most 2048; layers: number of blocks from the first, by default all; mtp: of
/// those that predict further tokens, by default none. The result is checked. Throws pp::Error (data) with the
/// JSON pointer for the document, (usage) for the arguments. O(layers).
ModelGraph build_hugging_face(const Json& config, std::string_view arguments = {});

}  // namespace pp::model
