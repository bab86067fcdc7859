#include "librun/checkpoint/model_tensors.h"

#include <algorithm>

#include "libprofile/core/counted.h"
#include "libprofile/core/error.h"

namespace pp::run {

namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& message) {
  throw Error(ErrorKind::data, "tensor \"" + name + "\": " + message);
}

}  // namespace

std::string slot_name(const std::string& parameter, const std::string& slot) { return parameter + "." + slot; }

std::vector<ModelTensor> model_tensors(const ResolvedModel& model, DType dtype) {
  std::vector<ModelTensor> tensors;
  for (int layer = 0; layer < model.layer_count(); ++layer) {
    const ResolvedLayer& resolved = model.layers[static_cast<std::size_t>(layer)];
    for (std::size_t i = 0; resolved.weights_layer == layer && i < resolved.parameters.size(); ++i)
      tensors.push_back(
          {parameter_name(model, layer, i), {resolved.parameters[i].shape, dtype}, resolved.trained[i]});
    for (std::size_t i = 0; i < resolved.buffers.size(); ++i) {
      const ParameterSpec& buffer = resolved.buffers[i];
      const DType type = is_floating(buffer.dtype) ? dtype : buffer.dtype;
      tensors.push_back({buffer_name(model, layer, i), {buffer.shape, type}, false});
    }
  }
  return tensors;
}

std::vector<std::string> missing_weights(const SafetensorsFile& file, std::span<const ModelTensor> wanted,
                                         bool ignore_unknown) {
  std::vector<std::string> missing;
  for (const ModelTensor& tensor : wanted) {
    const SafetensorsFile::Entry* const found = file.find(tensor.name);
    if (!found) {
      missing.push_back(tensor.name);
      continue;
    }
    if (found->type.shape != tensor.type.shape)
      refuse(tensor.name, "has the shape " + to_text(found->type.shape) + ", the model's has " +
                              to_text(tensor.type.shape) + "; give the weights of this model");
    if (is_floating(tensor.type.dtype) && !is_floating(found->type.dtype))
      refuse(tensor.name, "is " + std::string(name_of(found->type.dtype)) + ", weights are floating numbers");
    if (!is_floating(tensor.type.dtype) && found->type.dtype != tensor.type.dtype)
      refuse(tensor.name, "is " + std::string(name_of(found->type.dtype)) + ", the model's is " +
                              std::string(name_of(tensor.type.dtype)));
  }
  if (ignore_unknown) return missing;
  for (const SafetensorsFile::Entry& tensor : file.tensors()) {
    if (std::ranges::find(wanted, tensor.name, &ModelTensor::name) == wanted.end())
      refuse(tensor.name, "is not in the model; leave such tensors out with --ignore-unknown-weights");
  }
  return missing;
}

bool has_optimizer_state(const SafetensorsFile& file, std::span<const ModelTensor> wanted,
                         std::span<const std::string> slots) {
  std::vector<std::string> missing;
  std::size_t found = 0;
  for (const ModelTensor& tensor : wanted) {
    for (std::size_t i = 0; tensor.trained && i < slots.size(); ++i) {
      const std::string name = slot_name(tensor.name, slots[i]);
      const SafetensorsFile::Entry* const state = file.find(name);
      if (!state) {
        missing.push_back(name);
        continue;
      }
      ++found;
      const bool single = slots[i] == "step";
      if (state->type.shape != (single ? Shape{} : tensor.type.shape) ||
          state->type.dtype != (single ? DType::float32 : tensor.type.dtype))
        refuse(name, "is " + std::string(name_of(state->type.dtype)) + " " + to_text(state->type.shape) +
                         ", the optimizer's state of " + std::string(name_of(tensor.type.dtype)) + " " +
                         to_text(tensor.type.shape) + " is expected");
    }
  }
  if (found > 0 && !missing.empty())
    refuse(missing.front(),
           "is missing (" + counted(std::ssize(missing), "tensor") + " in all); use a whole checkpoint");
  return found > 0;
}

}  // namespace pp::run
