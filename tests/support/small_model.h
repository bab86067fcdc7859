// The smallest model that can be cut: two linear layers, a and b.
#pragma once

#include <nlohmann/json.hpp>

#include "libprofile/core/json_reader.h"
#include "libprofile/core/model/model_graph.h"

namespace pp::test {

/// Eight inputs, sixteen values at the cut, four classes.
inline ModelGraph small_model() {
  return model_from_json(parse_json(R"({"format": "pp.model", "version": 1, "name": "small",
    "inputs": [{"name": "x", "dtype": "float32", "shape": [8]}],
    "targets": [{"name": "y", "dtype": "int64", "shape": []}],
    "layers": [{"name": "a", "op": "linear", "inputs": ["x"], "attributes": {"out_features": 16}},
               {"name": "b", "op": "linear", "inputs": ["a"], "attributes": {"out_features": 4}}],
    "outputs": ["b"], "loss": {"op": "cross_entropy", "inputs": ["b", "y"]}})"));
}

}  // namespace pp::test
