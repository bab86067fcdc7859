// A model's outputs on one device by the book: one layer after the other, no stages, no passes.
#pragma once

#include <string>

#include "tests/librun/reference.h"

namespace pp::test {

class ModelAlone {
 public:
  /// `weights`: parameters and buffers by name, all of them.
  ModelAlone(const pp::ModelGraph& graph, const NamedTensors& weights);

  /// Named as the model's outputs, for inputs that are named as the model's, `rows` at a time.
  NamedTensors outputs(const NamedTensors& inputs, std::int64_t rows) const;

 private:
  std::vector<at::Tensor> forward(const NamedTensors& inputs, std::int64_t first, std::int64_t count) const;

  pp::ResolvedModel model_;
  std::vector<std::vector<at::Tensor>> parameters_, buffers_;  ///< per layer
};

/// Such tensors as a safetensors file.
void write_tensors(const std::filesystem::path& path, const NamedTensors& tensors);

}  // namespace pp::test
