// The kernels of a run: which of LibTorch's run its products of matrices and its convolutions. A choice is
// made by key alone (task, type, layout, sizes), so the same operation takes the same kernel in every plan,
// stage and thread.
//
// Products are caught where LibTorch dispatches them: mm, addmm and bmm on a CPU. So the choice holds for
// whatever leads there: linear layers, attention's projections, an LSTM's gates, calls of imported models,
// and autograd's backward of all these. Convolutions ask for theirs (ops/convolution).
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "libprofile/core/kernel_choice.h"

namespace pp::model {

struct KernelKeyHash {
  std::size_t operator()(const KernelKey& key) const;
};
using KernelKeys = std::unordered_set<KernelKey, KernelKeyHash>;

/// Immutable; several threads may ask at once.
class Kernels {
 public:
  explicit Kernels(std::span<const KernelChoice> choices);
  /// O(1), allocates nothing.
  std::optional<Kernel> find(const KernelKey& key) const;

 private:
  std::unordered_map<KernelKey, Kernel, KernelKeyHash> kernels_;
};

/// In its scope the calling thread's operations take these kernels; null: the usual ones. Scopes nest.
class UseKernels {
 public:
  explicit UseKernels(const Kernels* kernels);
  ~UseKernels();
  UseKernels(const UseKernels&) = delete;
  UseKernels& operator=(const UseKernels&) = delete;

 private:
  const Kernels* before_;
};

/// In its scope the keys of the calling thread's operations that have several kernels go into `keys`.
class RecordKernels {
 public:
  explicit RecordKernels(KernelKeys& keys);
  ~RecordKernels();
  RecordKernels(const RecordKernels&) = delete;
  RecordKernels& operator=(const RecordKernels&) = delete;
};

/// In its scope the calling thread's operations take the usual kernels, and no keys are recorded: for sizes
/// that depend on values, of which a profile knows nothing.
class UsualKernels {
 public:
  UsualKernels();
  ~UsualKernels();
  UsualKernels(const UsualKernels&) = delete;
  UsualKernels& operator=(const UsualKernels&) = delete;

 private:
  const Kernels* used_;
  KernelKeys* recorded_;
};

/// What an operation of several kernels asks before it runs: the scope's choice, else the usual one.
Kernel chosen_kernel(const KernelKey& key);
/// Without a choice. Convolutions by one figure, output channels by positions (n h' w'): they are products from
/// 16 on, weight gradients from 1 on, where the two ways cross in `scripts/bench convolution`.
Kernel usual_kernel(const KernelKey& key);

/// The operation of a key by itself, on tensors of its own: to time its kernels, and to test them.
struct KernelCall {
  /// left, right, and a bias or what is there before; x, weight, and of gradients the output's.
  std::vector<at::Tensor> inputs;
  /// Runs the operation as layers do, by the kernel that the thread's scope chooses (UseKernels). Writes over
  /// no input but the last of product_into and product_added.
  std::function<at::Tensor()> run;
};

/// Drawn from N(0, 1), a CPU's, from `generator`.
KernelCall make_call(const KernelKey& key, const at::Generator& generator);

}  // namespace pp::model
