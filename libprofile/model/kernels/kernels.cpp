#include "libprofile/model/kernels/kernels.h"

#include <utility>

namespace pp::model {
namespace {

thread_local const Kernels* used = nullptr;
thread_local KernelKeys* recorded = nullptr;

[[maybe_unused]] const bool kProductsRegistered = register_products();

}  // namespace

std::size_t KernelKeyHash::operator()(const KernelKey& key) const {
  const auto mix = [](std::size_t hash, std::size_t value) {
    return (hash ^ value) * std::size_t{0x9E3779B97F4A7C15U} + (hash >> 29U);
  };
  std::size_t hash = mix(static_cast<std::size_t>(key.task), static_cast<std::size_t>(key.dtype));
  hash = mix(hash, static_cast<std::size_t>(key.layout));
  for (std::size_t i = 0; i < size_count(key.task); ++i)
    hash = mix(hash, static_cast<std::size_t>(key.sizes[i]));
  return hash;
}

Kernels::Kernels(std::span<const KernelChoice> choices) {
  for (const KernelChoice& choice : choices) kernels_.emplace(choice.key, choice.kernel);
}

std::optional<Kernel> Kernels::find(const KernelKey& key) const {
  const auto found = kernels_.find(key);
  return found == kernels_.end() ? std::nullopt : std::optional(found->second);
}

UseKernels::UseKernels(const Kernels* kernels) : before_(std::exchange(used, kernels)) {}
UseKernels::~UseKernels() { used = before_; }

RecordKernels::RecordKernels(KernelKeys& keys) { recorded = &keys; }
RecordKernels::~RecordKernels() { recorded = nullptr; }

Kernel chosen_kernel(const KernelKey& key) {
  if (recorded != nullptr) recorded->insert(key);
  const std::optional<Kernel> chosen = used == nullptr ? std::nullopt : used->find(key);
  return chosen ? *chosen : usual_kernel(key);
}

Kernel usual_kernel(const KernelKey& key) {
  if (is_product(key.task)) return Kernel::mkl;
  const std::int64_t factor = key.task == KernelTask::convolution_weight_gradient ? 1 : 16;
  return output_positions(key) * factor <= key.sizes[4] ? Kernel::product : Kernel::convolution;
}

}  // namespace pp::model
