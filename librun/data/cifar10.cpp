// The binary version of CIFAR-10: records of a label's byte and 3 x 32 x 32 bytes of an image.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "librun/data/readers.h"

namespace pp::run {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLabel = 1, kImage = 3 * 32 * 32, kRecord = kLabel + kImage;

using Files = std::vector<std::shared_ptr<const FileBytes>>;

void add(Files& files, const fs::path& path) {
  const auto file = std::make_shared<const FileBytes>(path);
  if (file->size() == 0 || file->size() % kRecord != 0) {
    throw Error(ErrorKind::data, path.string() + ": " + std::to_string(file->size()) +
                                     " bytes, a CIFAR-10 file has a multiple of " + std::to_string(kRecord) +
                                     " (a label and 3 x 32 x 32 bytes)");
  }
  files.push_back(file);
}

Files files_of(const DataRequest& request, Subset subset) {
  Files files;
  if (subset == Subset::test) {
    if (is_there(request.path / "test_batch.bin")) add(files, request.path / "test_batch.bin");
    return files;
  }
  for (int batch = 1;; ++batch) {
    const fs::path path = request.path / ("data_batch_" + std::to_string(batch) + ".bin");
    if (batch > 1 && !is_there(path)) return files;
    add(files, path);
  }
}

Records records_of(const DataRequest& request, const Files& files, std::uint64_t offset, Shape shape) {
  Records records{.source = request.path.string(), .type = ElementType::uint8, .shape = std::move(shape)};
  for (const auto& file : files)
    records.parts.push_back({file, offset, kRecord, static_cast<std::int64_t>(file->size() / kRecord)});
  return records;
}

}  // namespace

std::optional<SampleTable> read_cifar10(const DataRequest& request, Subset subset) {
  require_one_of_each(request, "images and labels");
  const Files files = files_of(request, subset);
  if (files.empty()) return std::nullopt;
  const ModelGraph& graph = request.model.graph;
  const auto images = [&](const DataTensor&) { return records_of(request, files, kLabel, {3, 32, 32}); };
  const auto labels = [&](const DataTensor&) { return records_of(request, files, 0, {}); };
  return SampleTable{request.path.string(), columns(request, graph.inputs, images),
                     columns(request, graph.targets, labels)};
}

}  // namespace pp::run
