// The trained tensors of a stage end to end in one buffer: what the optimizer, the all-reduce and checkpoints
// treat as one vector.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "libprofile/model/segment.h"
#include "librun/stage/block_squares.h"

namespace pp::run {

/// A vector with the places of weights, and the same by parameter.
struct FlatTensors {
  at::Tensor flat;                     ///< [n]
  std::vector<at::Tensor> parameters;  ///< views of it
};

/// Another vector of that length, by the parameters of `like`.
FlatTensors with_places(at::Tensor flat, const FlatTensors& like);

/// Weights take the first `weight_size()` elements, each distinct parameter once. Gradients have the same
/// places, and behind them one for every further use of a shared parameter. Every place begins at a multiple of
/// 64 bytes, 256 on a CUDA device; what lies between is zero and stays so. Parameters that are not trained have
/// a buffer of their own, of which there is one version.
class FlatLayout {
 public:
  struct Use {
    std::size_t layer, index;  ///< in the segment
    std::int64_t offset = 0;   ///< of its gradient
  };
  struct Parameter {
    std::vector<Use> uses;  ///< ascending; the first one's offset is the parameter's
    std::vector<std::int64_t> shape;
    std::int64_t length = 0;
    at::MemoryFormat format = at::MemoryFormat::Contiguous;
    std::int64_t offset() const { return uses.front().offset; }
  };

  /// `dtype`: of all of them; `device`: where their buffers will be.
  FlatLayout(const ResolvedModel& model, const model::Segment& segment, DType dtype, const at::Device& device);

  const std::vector<Parameter>& parameters() const { return parameters_; }
  /// Those that are not trained; offsets are in their buffer.
  const std::vector<Parameter>& frozen() const { return frozen_; }
  std::int64_t weight_size() const { return weight_size_; }
  std::int64_t gradient_size() const { return gradient_size_; }

  /// Elements [begin, end) of the gradient, complete when the backward of `layer` (in the segment) has run.
  struct Bucket {
    int layer = 0;
    std::int64_t begin = 0, end = 0;
  };
  /// Parts of the gradient in the order in which a backward completes them, whole layers of at least so many
  /// elements; the last one may have fewer, and further uses of shared parameters are one of their own.
  std::vector<Bucket> buckets(std::int64_t least) const;

  /// Rows [first, end) by the first dimension of a trained parameter, all of it where it is not cut.
  struct Piece {
    std::size_t parameter = 0;
    std::int64_t first = 0, end = 0;
    std::int64_t offset = 0, length = 0;  ///< elements of the weights
    bool operator==(const Piece&) const = default;
  };
  /// The weights cut into one part for each member of a group, nearly equal ones: between parameters, or within
  /// one between rows where that is a multiple of kNormBlock elements from its beginning. So a kernel's vectors
  /// are those of whole parameters (model::Optimizer), no block of a norm is cut, and a piece is a tensor of
  /// its own in either memory format. Parts may be empty.
  std::vector<std::vector<Piece>> parts(std::size_t members) const;
  static at::Tensor view(const at::Tensor& flat, const Parameter& parameter, const Piece& piece);

  /// Of the weights, and of the frozen ones; undefined where there are none.
  struct Buffers {
    at::Tensor trained, frozen;
  };
  Buffers zeros() const;
  /// Leaves that refer into both buffers.
  model::Weights leaves(const Buffers& buffers) const;
  /// The place of a parameter, or of one use's gradient.
  static at::Tensor view(const at::Tensor& flat, const Parameter& parameter, std::int64_t offset);

 private:
  at::TensorOptions options_;
  std::vector<std::size_t> layer_sizes_;  ///< parameters of each layer of the segment
  std::vector<Parameter> parameters_, frozen_;
  std::int64_t frozen_size_ = 0;
  std::int64_t weight_size_ = 0;
  std::int64_t gradient_size_ = 0;
};

}  // namespace pp::run
