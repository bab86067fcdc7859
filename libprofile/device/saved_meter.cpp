#include "libprofile/device/saved_meter.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>
#include <utility>

namespace pp::profile {
namespace {

thread_local SavedMeter* t_meter = nullptr;  // the meter of this thread, if any; set by SavedMeter only

/// Keeps the tensor as autograd would, after telling the meter.
struct MeteringHook final : torch::autograd::SavedVariableHooks {
  explicit MeteringHook(SavedMeter& own) : meter(own) {}
  void call_pack_hook(const at::Tensor& tensor) override {
    meter.record(tensor);
    kept = tensor.detach();
  }
  at::Tensor call_unpack_hook() override { return kept; }

  SavedMeter& meter;  // used while packing only, so it may be gone at backward
  at::Tensor kept;
};

struct MeteringEngine final : torch::autograd::Engine {
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return t_meter != nullptr ? std::make_unique<MeteringHook>(*t_meter) : nullptr;
  }
};

torch::autograd::Engine& metering_engine() {
  // Lives as long as the process: graphs of static tensors may outlive any destructor of ours.
  static MeteringEngine* engine = new MeteringEngine;
  return *engine;
}

}  // namespace

void install_saved_meter() { torch::autograd::set_default_engine_stub(&metering_engine); }

SavedMeter::SavedMeter(std::span<const at::Tensor> parameters, int layers, const MemoryAccount& account)
    : account_(account), bytes_(static_cast<std::size_t>(layers)), first_mark_(account.blocks()) {
  for (const at::Tensor& parameter : parameters) counted_.insert(parameter.storage().data());
  t_meter = this;
}

SavedMeter::~SavedMeter() { t_meter = nullptr; }

void SavedMeter::enter(int layer) {
  layer_ = layer;
  mark_ = account_.blocks();
  received_.clear();
}

void SavedMeter::record(const at::Tensor& saved) {
  if (layer_ < 0 || !saved.defined() || !saved.has_storage()) return;
  const at::Storage& storage = saved.storage();
  if (storage.nbytes() == 0 || !counted_.insert(storage.data()).second) return;
  SavedBytes& bytes = bytes_[static_cast<std::size_t>(layer_)];
  const Bytes size(static_cast<std::int64_t>(storage.nbytes()));
  bytes.total += size;
  if (account_.charged_since(storage.data_ptr(), first_mark_)) made_ += size;
  if (account_.charged_since(storage.data_ptr(), mark_)) return;
  bytes.own_input += size;
  received_.emplace(storage.data(), size);
}

void SavedMeter::made(std::span<const at::Tensor> outputs) {
  for (const at::Tensor& output : outputs) {
    const auto overwritten = received_.extract(output.storage().data());
    if (overwritten) bytes_[static_cast<std::size_t>(layer_)].own_input -= overwritten.mapped();
  }
}

}  // namespace pp::profile
