#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>

#include "libprofile/core/error.h"
#include "libprofile/model/ops.h"
#include "librun/data/dataset.h"
#include "librun/data/idx.h"

namespace pp::run {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& path, const std::string& message) {
  throw Error(ErrorKind::data, path.string() + ": " + message);
}

std::string_view prefix(Subset subset) { return subset == Subset::training ? "train" : "test"; }

fs::path file_of(const fs::path& folder, Subset subset, std::string_view what) {
  return folder / (std::string(prefix(subset)) + "-" + std::string(what) + ".idx");
}

Shape without_ones(const Shape& shape) {
  Shape rest;
  std::copy_if(shape.begin(), shape.end(), std::back_inserter(rest),
               [](std::int64_t size) { return size != 1; });
  return rest;
}

bool fits(const Shape& found, const Shape& expected) {
  if (without_ones(found) == without_ones(expected)) return true;
  return expected.size() == 1 && element_count(found) == expected.front();
}

void check_column(const fs::path& path, const IdxHeader& header, const DataTensor& tensor,
                  std::string_view role) {
  const std::string wanted = "the model's " + std::string(role) + " \"" + tensor.name + "\" is ";
  if (!fits(header.sample_shape(), tensor.type.shape)) {
    refuse(path, "samples have the shape " + to_text(header.sample_shape()) + ", " + wanted +
                     to_text(tensor.type.shape) + "; give data of that shape or plan a model for this data");
  }
  if (!is_integer(header.type) && !is_floating(tensor.type.dtype)) {
    refuse(path, "elements are " + std::string(name_of(header.type)) + ", " + wanted +
                     std::string(name_of(tensor.type.dtype)) + "; give integers");
  }
}

void check_one_of_each(const ResolvedModel& model, const fs::path& folder) {
  const std::size_t inputs = model.graph.inputs.size(), targets = model.graph.targets.size();
  if (inputs == 1 && targets == 1) return;
  refuse(folder, "images and labels are one input and one target, the model has " + std::to_string(inputs) +
                     " inputs and " + std::to_string(targets) + " targets; use --data synthetic");
}

std::int64_t check_subset(const ResolvedModel& model, const fs::path& folder, Subset subset) {
  const fs::path images = file_of(folder, subset, "images"), labels = file_of(folder, subset, "labels");
  const IdxHeader image_header = read_idx_header(images), label_header = read_idx_header(labels);
  check_column(images, image_header, model.graph.inputs.front(), "input");
  check_column(labels, label_header, model.graph.targets.front(), "target");
  if (image_header.samples() != label_header.samples()) {
    refuse(labels, std::to_string(label_header.samples()) + " labels for " +
                       std::to_string(image_header.samples()) + " images in " + images.string());
  }
  return image_header.samples();
}

at::ScalarType stored_type(IdxType type) {
  switch (type) {
    case IdxType::uint8: return at::kByte;
    case IdxType::int8: return at::kChar;
    case IdxType::int16: return at::kShort;
    case IdxType::int32: return at::kInt;
    case IdxType::float32: return at::kFloat;
    case IdxType::float64: return at::kDouble;
  }
  return at::kByte;
}

Column read_column(const fs::path& path, const DataTensor& tensor, const DataOptions& options) {
  const IdxHeader header = read_idx_header(path);
  const std::string elements = read_idx_elements(path, header);
  Column column;
  column.values = at::empty(header.shape, at::TensorOptions(stored_type(header.type)));
  std::memcpy(column.values.data_ptr(), elements.data(), elements.size());
  column.shape = tensor.type.shape;
  column.type = model::scalar_type(is_floating(tensor.type.dtype) ? options.dtype : tensor.type.dtype);
  return column;
}

void check_labels(const fs::path& path, const Column& labels, std::int64_t classes) {
  if (classes == 0) return;
  const auto smallest = labels.values.min().item<std::int64_t>(),
             largest = labels.values.max().item<std::int64_t>();
  if (smallest >= 0 && largest < classes) return;
  refuse(path, "labels go from " + std::to_string(smallest) + " to " + std::to_string(largest) +
                   ", the model has " + std::to_string(classes) + " classes, 0 to " +
                   std::to_string(classes - 1));
}

}  // namespace

FolderCheck check_folder(const ResolvedModel& model, const fs::path& folder) {
  if (!fs::is_directory(folder))
    refuse(folder, "no such folder; give a folder with train-images.idx and train-labels.idx, or synthetic");
  check_one_of_each(model, folder);
  FolderCheck found;
  found.training_samples = check_subset(model, folder, Subset::training);
  const bool images = fs::exists(file_of(folder, Subset::test, "images"));
  const bool labels = fs::exists(file_of(folder, Subset::test, "labels"));
  if (images || labels) found.test_samples = check_subset(model, folder, Subset::test);
  return found;
}

Dataset load_folder(const ResolvedModel& model, const fs::path& folder, Subset subset,
                    const DataOptions& options) {
  const fs::path images = file_of(folder, subset, "images"), labels = file_of(folder, subset, "labels");
  const DataTensor& input = model.graph.inputs.front();
  Dataset data;
  data.source = images.string();
  data.samples = check_subset(model, folder, subset);
  data.inputs.push_back(read_column(images, input, options));
  data.targets.push_back(read_column(labels, model.graph.targets.front(), options));
  const IdxType type = read_idx_header(images).type;
  if (is_integer(type) && is_floating(input.type.dtype))
    data.inputs.front().scale = options.scale.value_or(1 / maximum(type));
  check_labels(labels, data.targets.front(), class_count(model));
  return data;
}

}  // namespace pp::run
