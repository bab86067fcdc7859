#include "librun/checkpoint/weight_files.h"

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "libprofile/core/error.h"
#include "libprofile/core/file.h"
#include "libprofile/core/json_reader.h"
#include "librun/checkpoint/checkpoint_folder.h"
#include "librun/checkpoint/safetensors.h"

namespace pp::run {

namespace {

namespace fs = std::filesystem;

constexpr auto kIndex = ".safetensors.index.json";
constexpr auto kWhole = "model.safetensors";

/// {"metadata": ..., "weight_map": {TENSOR: FILE}}
std::vector<fs::path> shards_of(const fs::path& index) {
  const Json document = with_context(index.string(), [&] { return parse_json(read_file(index)); });
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorKind::data, index.string() + ": " + what);
  };
  if (!document.is_object() || !document.contains("weight_map") || !document["weight_map"].is_object())
    refuse("has no \"weight_map\" of tensors and their files");
  std::map<std::string, std::vector<std::string>> tensors;  // by file
  for (const auto& [tensor, file] : document["weight_map"].items()) {
    if (!file.is_string()) refuse("/weight_map/" + tensor + ": is not the name of a file");
    const auto name = file.get<std::string>();
    if (fs::path(name).filename() != name || name.starts_with('.'))
      refuse("/weight_map/" + tensor + ": \"" + name + "\" is not the name of a file in this folder");
    tensors[name].push_back(tensor);
  }
  if (tensors.empty()) refuse("lists no tensor");
  std::vector<fs::path> files;
  for (const auto& [name, names] : tensors) {
    const SafetensorsFile shard(files.emplace_back(index.parent_path() / name));
    for (const std::string& tensor : names) {
      if (!shard.find(tensor))
        refuse("/weight_map/" + tensor + ": is not in " + name + "; fetch the shard again");
    }
  }
  return files;
}

}  // namespace

std::vector<fs::path> weight_files(const fs::path& path) {
  std::error_code error;
  if (path.filename().string().ends_with(kIndex)) return shards_of(path);
  if (!fs::is_directory(path, error)) return {path};
  if (const fs::path index = path / (std::string("model") + kIndex); fs::exists(index, error))
    return shards_of(index);
  if (fs::exists(path / kWhole, error)) return {path / kWhole};
  return files_of(find_checkpoint(path), kWeights);
}

}  // namespace pp::run
