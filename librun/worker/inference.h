// What an inference does with its forward-only passes: when they may begin, what they read, and what becomes of
// the model's outputs. The passes themselves are the workers', as an evaluation's are.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "libprofile/model/ops.h"
#include "librun/data/dataset.h"
#include "librun/wiring/cursor.h"

namespace pp::run {

/// What a pass computes of its sequences, where it is not all of them at once.
struct PassPiece {
  std::size_t group = 0;  ///< of sequences, whose pieces follow each other
  model::Piece piece = {};
  std::vector<std::size_t> ended = {};  ///< groups without further passes
};

class Inference {
 public:
  virtual ~Inference() = default;

  /// The driver's side. Both return how many passes may begin, in all: at first, and when `pass` is complete.
  /// The inference is done when all of them are.
  virtual Step begin(int workers) = 0;
  virtual Step completed(Step pass) = 0;
  /// What is complete, in samples or tokens, and of how many.
  virtual std::int64_t done() const = 0;
  virtual std::int64_t all() const = 0;
  /// Everything is done: writes what is left, and gives the files their names.
  virtual void finish() = 0;

  /// The workers' side, by several of them at once. Sets the rows of a pass that may begin.
  virtual void locate(Operation& /*operation*/) const {}
  /// Of a pass that may begin; null: whole samples. Lives as long as this.
  virtual const PassPiece* piece(const Operation& /*operation*/) const { return nullptr; }
  /// Output `output` of the model for the rows of a pass, on the worker's device.
  virtual void take(const Operation& operation, std::size_t output, const at::Tensor& values) = 0;
};

/// What a job that trains nothing runs on.
struct ForwardOnly {
  std::unique_ptr<const Dataset> data;
  EpochShape shape;  ///< each of its mini-batches is a pass
  std::unique_ptr<Inference> inference;
};

}  // namespace pp::run
