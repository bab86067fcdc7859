#include "librun/infer/output_file.h"

#include <algorithm>

#include "libprofile/core/error.h"
#include "libprofile/model/ops.h"
#include "librun/checkpoint/safetensors.h"

namespace pp::run {

namespace {

const TensorType& type_of(const ResolvedModel& model, const TensorSource& output) {
  return model.layers[static_cast<std::size_t>(output.index)].outputs[static_cast<std::size_t>(output.output)];
}

const std::filesystem::path& plain(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (path == "-" || (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))) {
    throw Error(ErrorKind::usage, path.string() +
                                      ": outputs are written row by row to where they belong, which "
                                      "takes a plain file; give one");
  }
  return path;
}

}  // namespace

OutputFile::OutputFile(const std::filesystem::path& path, const ResolvedModel& model, DType dtype,
                       const EpochShape& shape)
    : file_(plain(path)), shape_(shape) {
  std::vector<StoredTensor> tensors;
  std::uint64_t offset = 0;
  for (std::size_t k = 0; k < model.outputs.size(); ++k) {
    const std::string& name = model.graph.outputs[k];
    places_.emplace_back();
    if (std::ranges::count(tensors, name, &StoredTensor::name) > 0) continue;
    TensorType type = type_of(model, model.outputs[k]);
    if (is_floating(type.dtype)) type.dtype = dtype;
    places_.back() = {offset, static_cast<std::uint64_t>(bytes_of(type).value), model::scalar_type(type.dtype)};
    type.shape.insert(type.shape.begin(), shape.samples);
    offset += static_cast<std::uint64_t>(bytes_of(type).value);
    tensors.push_back({name, std::move(type), {}});
  }
  const std::string front = safetensors_front(tensors);
  for (std::optional<Place>& place : places_)
    if (place) place->offset += front.size();
  file_.write(front);
}

// Two for each worker: one that it runs, and one that has arrived by then.
Step OutputFile::begin(int workers) {
  lead_ = Step{2} * workers;
  return std::min(shape_.count, lead_);
}

Step OutputFile::completed(Step pass) {
  samples_done_ += shape_.size(pass);
  return std::min(shape_.count, ++passes_done_ + lead_);
}

void OutputFile::finish() { file_.commit(); }

void OutputFile::take(const Operation& operation, std::size_t output, const at::Tensor& values) {
  const std::optional<Place>& place = places_[output];
  if (!place) return;
  const at::Tensor rows = values.detach().to(at::kCPU, place->type).contiguous();
  file_.write_at(place->offset + static_cast<std::uint64_t>(operation.first_row) * place->row_bytes,
                 {static_cast<const char*>(rows.const_data_ptr()), rows.nbytes()});
}

}  // namespace pp::run
