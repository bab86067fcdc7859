// The samples of a training or test set in memory, and the micro-batches cut from them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/model_graph.h"

namespace pp::run {

/// One named tensor of the data, all samples, as stored: integer images stay integers until a micro-batch is
/// cut.
struct Column {
  at::Tensor values;                 ///< [samples, shape...]
  Shape shape;                       ///< per sample, as the model wants it
  at::ScalarType type = at::kFloat;  ///< of the micro-batches
  double scale = 1;                  ///< multiplies each value after the conversion to `type`
};

/// Read-only after it is made; shared by all workers.
struct Dataset {
  std::string source;           ///< for messages
  std::vector<Column> inputs;   ///< in the order of the model's inputs
  std::vector<Column> targets;  ///< in the order of the model's targets
  std::int64_t samples = 0;
};

/// The rows `samples` of a column: [n, shape...], dense, a new tensor.
at::Tensor rows(const Column& column, std::span<const std::int64_t> samples);
/// The same of the input or target that `source` names.
at::Tensor cut(const Dataset& data, const TensorSource& source, std::span<const std::int64_t> samples);

/// Which files a folder has, read from their headers alone.
struct FolderCheck {
  std::int64_t training_samples = 0;
  std::int64_t test_samples = 0;  ///< 0: the folder has no test files
};

/// The data of `--data DIR`: {train,test}-{images,labels}.idx for a model with one input and one target. Checks
/// presence, sample counts, and shapes and element types against the model. Images whose shape differs only by
/// dimensions of size 1, or that the model takes flat, fit. Throws pp::Error (data) with file, found, expected.
FolderCheck check_folder(const ResolvedModel& model, const std::filesystem::path& folder);

struct DataOptions {
  DType dtype = DType::float32;  ///< of floating tensors
  std::optional<double> scale;   ///< of integer images for a floating input; default 1/(maximum of the type)
};

enum class Subset { training, test };

/// Reads the files that check_folder() accepted, and checks the labels against the number of classes.
Dataset load_folder(const ResolvedModel& model, const std::filesystem::path& folder, Subset subset,
                    const DataOptions& options);

/// Classes that cross_entropy distinguishes: the size of the prediction's last dimension. 0 for other losses.
std::int64_t class_count(const ResolvedModel& model);

}  // namespace pp::run
