// The binary version of CIFAR-10: records of a label's byte and 3 x 32 x 32 bytes of an image.
#include <memory>
#include <string>

#include "libprofile/core/error.h"
#include "librun/data/readers.h"

namespace pp::run {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLabel = 1, kImage = 3 * 32 * 32, kRecord = kLabel + kImage;

void add(SampleTable& table, const fs::path& path) {
  const auto file = std::make_shared<const FileBytes>(path);
  if (file->size() == 0 || file->size() % kRecord != 0) {
    throw Error(ErrorKind::data, path.string() + ": " + std::to_string(file->size()) +
                                     " bytes, a CIFAR-10 file has a multiple of " + std::to_string(kRecord) +
                                     " (a label and 3 x 32 x 32 bytes)");
  }
  const auto count = static_cast<std::int64_t>(file->size() / kRecord);
  table.targets.front().parts.push_back({file, 0, kRecord, count});
  table.inputs.front().parts.push_back({file, kLabel, kRecord, count});
}

}  // namespace

std::optional<SampleTable> read_cifar10(const DataRequest& request, Subset subset) {
  require_one_of_each(request, "images and labels");
  const std::string source = request.path.string();
  SampleTable table{.source = source};
  table.inputs.push_back({.source = source, .type = ElementType::uint8, .shape = {3, 32, 32}});
  table.targets.push_back({.source = source, .type = ElementType::uint8, .shape = {}});
  if (subset == Subset::test) {
    if (!is_there(request.path / "test_batch.bin")) return std::nullopt;
    add(table, request.path / "test_batch.bin");
    return table;
  }
  for (int batch = 1;; ++batch) {
    const fs::path path = request.path / ("data_batch_" + std::to_string(batch) + ".bin");
    if (batch > 1 && !is_there(path)) return table;
    add(table, path);
  }
}

}  // namespace pp::run
