// Training without a runtime: segments whose boundary tensors are handed over by hand, and the same model as
// one plain autograd graph to compare with.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "libprofile/core/model/model_graph.h"
#include "libprofile/model/segment.h"

namespace pp::model::test {

struct Job {
  const ResolvedModel* model;
  DType dtype = DType::float32;
  std::vector<std::int64_t> micro_batches{3, 3, 2};  ///< samples of each
  std::int64_t most_rows = 5;                        ///< integers of the data are below this
  RandomKey key{.seed = 7, .step = 5, .micro_batch = 0};
  MemoryFormat format = MemoryFormat::contiguous;  ///< of run_stages()
  std::shared_ptr<const Kernels> kernels = {};     ///< of run_stages()
};

/// Of the whole mini-batch.
struct Outcome {
  std::vector<at::Tensor> losses;                  ///< per micro-batch
  std::vector<std::vector<at::Tensor>> gradients;  ///< per layer of the model, per parameter: one sum per use
  std::vector<BatchStatistics> statistics;         ///< in micro-batch order, layers ascending
};

/// Of four samples in training, with initial weights.
double initial_loss(const ModelGraph& graph);

enum class Halves { together, apart };

/// The tensors that the data provides for micro-batch `index`: inputs, then targets, fixed by the index.
std::vector<at::Tensor> data_of(const Job& job, std::size_t index);

/// One graph over all layers, torch::autograd::grad, gradients added in micro-batch order. Like run_stages() it
/// gives the calling thread the settings of a worker with one thread inside operations.
Outcome run_plain(const Job& job);

/// The first layer whose outputs do not have the inferred shapes, empty when all have. Runs micro-batch 0.
std::string wrong_shape(const Job& job);

/// `stages`: the layers of each segment, the loss belongs to the last. All forwards, then all backwards;
/// `apart`: backward in two halves, the weight gradients of a micro-batch after the input gradients of all its
/// stages. `recompute`: layers that run again inside backward.
Outcome run_stages(const Job& job, const std::vector<std::vector<int>>& stages,
                   Halves halves = Halves::together, const std::vector<int>& recompute = {});

/// The layers 0..n-1 split before each of `cuts`.
std::vector<std::vector<int>> cut_at(const ResolvedModel& model, const std::vector<int>& cuts);

/// Empty when losses, gradients and statistics have the same bits, else what differs first.
std::string difference(const Outcome& a, const Outcome& b);
/// Over all gradients.
double largest_difference(const Outcome& a, const Outcome& b);

}  // namespace pp::model::test
