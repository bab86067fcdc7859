// Weights and data of models that are compared with others' (tests/scripts/family_numbers.py has the same), and
// the comparison of outputs, loss and gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "libprofile/core/model/model_graph.h"
#include "tests/support/model_values.h"

namespace pp::test {

inline constexpr std::int64_t kSamples = 3;

/// In [-1, 1): splitmix64 of the name's FNV-1a hash and the index; float64.
at::Tensor numbers(const std::string& name, const pp::Shape& shape);
/// Matrices that keep the variance through relu; ones and zeros, a little off, for what norms and biases have.
at::Tensor initial(const std::string& name, const pp::Shape& shape);
/// kSamples of an input or target; integers stay below what the model has embeddings or classes for.
at::Tensor family_data(const pp::ResolvedModel& model, const pp::DataTensor& tensor);

/// `document`: outputs, loss, gradients, steps of a file in tests/data/families.
void check_values(const ModelValues& values, const nlohmann::json& document, double tolerance);

/// The files of tests/data/families that have a config.json: decoders, as transformers computes them.
std::vector<std::string> decoder_cases();

}  // namespace pp::test
