// What of a stage is where, and what a training goes on from.
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/device/compute_device.h"
#include "librun/checkpoint/model_tensors.h"
#include "librun/stage/host_memory.h"
#include "librun/stage/stage.h"

namespace pp::run {

namespace {

Bytes bytes_of(const at::Tensor& tensor) {
  return Bytes(tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0);
}

}  // namespace

void Stage::hold(Hold what) {
  hold_ = what;
  for (const at::Tensor& flat : {versions_.newest_flat(), versions_.frozen_flat()})
    set_memory(flat, what != Hold::nothing);
  for (const auto& layer : buffers_) {
    for (const at::Tensor& buffer : layer) set_memory(buffer, what != Hold::nothing);
  }
  set_memory(gradient_, what == Hold::training);
  if (!optimizer_) return;
  for (const model::OptimizerSlot& slot : optimizer_->state()) {
    for (const at::Tensor& tensor : slot.tensors) set_memory(tensor, what == Hold::training);
  }
}

std::vector<at::Tensor> Stage::swapped() const {
  std::vector<at::Tensor> tensors;
  if (hold_ == Hold::nothing) return tensors;
  for (const at::Tensor& flat : {versions_.newest_flat(), versions_.frozen_flat()}) {
    if (flat.defined()) tensors.push_back(flat);
  }
  for (const auto& layer : buffers_) tensors.insert(tensors.end(), layer.begin(), layer.end());
  if (hold_ == Hold::weights || !optimizer_) return tensors;
  for (const model::OptimizerSlot& slot : optimizer_->state())
    tensors.insert(tensors.end(), slot.tensors.begin(), slot.tensors.end());
  return tensors;
}

StageBytes Stage::bytes() const {
  StageBytes bytes;
  if (hold_ == Hold::nothing) return bytes;
  bytes.weights = versions_.bytes_of_one() + bytes_of(versions_.frozen_flat());
  bytes.versions = versions_.bytes_of_one() * (version_count() - 1);
  if (hold_ == Hold::weights) return bytes;
  bytes.gradients = bytes_of(gradient_);
  for (const at::Tensor& master : masters_) bytes.optimizer += bytes_of(master);
  for (const model::OptimizerSlot& slot : optimizer_->state()) {
    for (const at::Tensor& tensor : slot.tensors) bytes.optimizer += bytes_of(tensor);
  }
  return bytes;
}

// A shared parameter has the name of the layer that owns it, which may be in another stage.
std::string Stage::name_of(const FlatLayout::Parameter& parameter) const {
  const FlatLayout::Use& use = parameter.uses.front();
  const auto layer = static_cast<std::size_t>(segment_.layers()[use.layer]);
  return parameter_name(model_, model_.layers[layer].weights_layer, use.index);
}

std::vector<Stage::LayerState> Stage::snapshot() const {
  const auto copy = [](const at::Tensor& tensor) {
    const at::Tensor room = profile::host_room(tensor.sizes(), tensor.scalar_type(),
                                               at::MemoryFormat::Contiguous, /*pinned=*/tensor.is_cuda());
    return room.copy_(tensor.detach(), /*non_blocking=*/true);
  };
  std::vector<LayerState> layers;
  for (const int layer : segment_.layers()) layers.push_back({layer, owner_});
  const auto is_owner = [&](const LayerState& state) {  // else its parameters are copies
    return model_.layers[static_cast<std::size_t>(state.layer)].weights_layer == state.layer;
  };
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::vector<at::Tensor>& weights = versions_.newest().layers[i];
    for (std::size_t p = 0; owner_ == 0 && is_owner(layers[i]) && p < weights.size(); ++p)
      layers[i].tensors.emplace_back(parameter_name(model_, layers[i].layer, p), copy(weights[p]));
  }
  for (std::size_t p = 0; p < own().size(); ++p) {
    const FlatLayout::Piece& piece = own()[p];
    const FlatLayout::Parameter& parameter = layout_.parameters()[piece.parameter];
    LayerState& state = layers[parameter.uses.front().layer];
    if (!is_owner(state)) continue;
    const bool whole = piece.length == parameter.length;
    const auto add = [&](const std::string& slot, const at::Tensor& tensor) {
      const bool single = tensor.dim() == 0;
      if (single && piece.first > 0) return;
      const std::string name = slot_name(name_of(parameter), slot);
      state.optimizer.emplace_back(whole || single ? name : rows_name(name, {piece.first, piece.end}),
                                   copy(tensor));
    };
    if (!masters_.empty()) add(std::string(kMaster), masters_[p]);
    for (const model::OptimizerSlot& slot : optimizer_->state()) add(slot.name, slot.tensors[p]);
  }
  for (std::size_t i = 0; owner_ == 0 && i < buffers_.size(); ++i) {
    for (std::size_t b = 0; b < buffers_[i].size(); ++b)
      layers[i].tensors.emplace_back(buffer_name(model_, layers[i].layer, b), copy(buffers_[i][b]));
  }
  return layers;
}

void Stage::restore(const StoredTensors& tensors, const StoredTensors& optimizer) {
  const std::span<const at::Tensor> weights = versions_.newest_parameters();
  std::vector<model::OptimizerSlot> slots;
  if (optimizer_) {
    for (const std::string& slot : optimizer_->slot_names()) slots.push_back({slot});
  }
  const auto read = [&](const std::string& name, const at::Tensor& weight) {
    if (tensors.contains(name)) tensors.read_to(name, weight);
  };
  for (std::size_t p = 0; p < layout_.frozen().size(); ++p)
    read(name_of(layout_.frozen()[p]), versions_.frozen_parameters()[p]);
  for (std::size_t p = 0; p < weights.size(); ++p) read(name_of(layout_.parameters()[p]), weights[p]);
  for (std::size_t p = 0; p < masters_.size(); ++p) {  // else from given weights, which may be finer than ours
    const FlatLayout::Piece& piece = own()[p];
    const std::string name = name_of(layout_.parameters()[piece.parameter]),
                      kept = slot_name(name, std::string(kMaster));
    const bool has_kept = optimizer.contains(kept);
    if (!has_kept && !tensors.contains(name)) continue;
    const at::Tensor stored = has_kept ? optimizer.read(kept) : tensors.read(name);
    masters_[p].copy_(stored.dim() == 0 ? stored : stored.narrow(0, piece.first, piece.end - piece.first));
  }
  for (const FlatLayout::Piece& piece : own()) {
    const std::string name = name_of(layout_.parameters()[piece.parameter]);
    for (model::OptimizerSlot& slot : slots) {
      const std::string kept = slot_name(name, slot.name);
      if (!optimizer.contains(kept)) continue;
      at::Tensor stored = optimizer.read(kept);
      if (stored.dim() > 0) stored = stored.narrow(0, piece.first, piece.end - piece.first);
      slot.tensors.push_back(stored.to(weights[piece.parameter].device(), stored.scalar_type(),
                                       /*non_blocking=*/false, /*copy=*/true,
                                       model::memory_format(segment_.format(), stored.dim())));
    }
  }
  for (const model::OptimizerSlot& slot : slots) {
    if (slot.tensors.size() == slots.front().tensors.size() &&
        (slot.tensors.empty() || slot.tensors.size() == own().size()))
      continue;
    throw Error(ErrorKind::data, "the optimizer's state \"" + slot.name + "\" is there for " +
                                     std::to_string(slot.tensors.size()) + " of " +
                                     std::to_string(own().size()) + " parameters; use a whole checkpoint");
  }
  if (!slots.empty() && !slots.front().tensors.empty()) optimizer_->set_state(std::move(slots));
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    for (std::size_t b = 0; b < buffers_[i].size(); ++b) {
      const std::string name = buffer_name(model_, segment_.layers()[i], b);
      if (tensors.contains(name)) tensors.read_to(name, buffers_[i][b]);
    }
  }
}

}  // namespace pp::run
