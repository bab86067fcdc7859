// Which kernels LibTorch takes on a GPU. Its deterministic algorithms are one setting of the process, by
// which an operation that has none throws. It can be told to warn instead, but then the backward of
// attention adds in any order as well, although it has a deterministic kernel.
#pragma once

#include <mutex>
#include <shared_mutex>
#include <string_view>

#include "libprofile/core/model/aten_call.h"

namespace pp::model::detail {

/// What the calling thread hands to a GPU in its scope. Threads that require deterministic kernels run at once;
/// one that does not runs alone, for the setting is changed meanwhile. Not nested. Does nothing where no GPU
/// was entered (libprofile/device).
class Determinism {
 public:
  explicit Determinism(bool required);
  ~Determinism();
  Determinism(const Determinism&) = delete;
  Determinism& operator=(const Determinism&) = delete;

 private:
  std::shared_lock<std::shared_mutex> required_;
  std::unique_lock<std::shared_mutex> alone_;
};

}  // namespace pp::model::detail

namespace pp::model::aten {

/// By the list of torch.use_deterministic_algorithms (PyTorch 2.11), and what is computed like those. Calls
/// that make no floating tensor are left out: sums of whole numbers do not depend on their order.
bool is_nondeterministic(const AtenCall& call);
/// The same of a function by its name, `adaptive_avg_pool2d`, whatever it makes.
bool is_nondeterministic(std::string_view name);

}  // namespace pp::model::aten
