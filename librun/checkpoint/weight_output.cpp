#include "librun/checkpoint/weight_output.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <string_view>
#include <system_error>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/core/json_reader.h"

namespace pp::run {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexEnding = ".safetensors.index.json";
constexpr auto kStem = "model";

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return path.filename().empty() || fs::is_directory(path, ignored);
}

}  // namespace

std::vector<std::vector<std::size_t>> shards_of(std::span<const ModelTensor> tensors, Bytes limit) {
  std::vector<std::vector<std::size_t>> shards;
  Bytes held(0);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Bytes bytes = bytes_of(tensors[i].type);
    if (shards.empty() || held + bytes > limit) {
      shards.emplace_back();
      held = Bytes(0);
    }
    shards.back().push_back(i);
    held += bytes;
  }
  return shards;
}

std::string shard_name(const std::string& stem, std::size_t number, std::size_t count) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "-%05zu-of-%05zu", number, count);
  return stem + digits + ".safetensors";
}

WeightOutput::WeightOutput(const fs::path& path, std::span<const ModelTensor> tensors, Bytes limit) {
  const std::string name = path.filename().string();
  const bool indexed = name.ends_with(kIndexEnding);
  const auto names_of = [&](const std::vector<std::size_t>& shard) {
    std::vector<std::string> names;
    for (const std::size_t i : shard) names.push_back(tensors[i].name);
    return names;
  };
  std::vector<std::size_t> all(tensors.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  if (!indexed && !is_folder(path)) {
    open(path, names_of(all));
    return;
  }

  folder_ = indexed ? path.parent_path() / "." : path;
  stem_ = indexed ? name.substr(0, name.size() - kIndexEnding.size()) : kStem;
  std::error_code ignored;  // the first file in it will say why
  fs::create_directories(folder_, ignored);
  const std::vector<std::vector<std::size_t>> shards = shards_of(tensors, limit);
  if (!indexed && shards.size() <= 1) {
    open(folder_ / (stem_ + ".safetensors"), names_of(all));
    return;
  }
  for (std::size_t s = 0; s < shards.size(); ++s)
    open(folder_ / shard_name(stem_, s + 1, shards.size()), names_of(shards[s]));
  index_ = std::make_unique<AtomicFile>(folder_ / (stem_ + std::string(kIndexEnding)));
}

void WeightOutput::open(const fs::path& path, std::vector<std::string> names) {
  files_.push_back({std::make_unique<AtomicFile>(path), std::move(names)});
}

void WeightOutput::write(std::span<const StoredTensor> tensors, const Metadata& metadata) {
  std::map<std::string_view, const StoredTensor*> by_name;
  for (const StoredTensor& tensor : tensors) by_name.emplace(tensor.name, &tensor);
  for (const File& file : files_) {
    std::vector<StoredTensor> part;
    for (const std::string& name : file.names) {
      const auto found = by_name.find(name);
      if (found == by_name.end()) throw Error(ErrorKind::internal, "no tensor \"" + name + "\" was trained");
      part.push_back(*found->second);
    }
    write_safetensors(
        part, [&](std::string_view bytes) { file.file->write(bytes); },
        &file == &files_.front() ? metadata : Metadata{});
  }
  if (index_) write_index(tensors);
  for (const File& file : files_) file.file->commit();
  if (index_) index_->commit();
  if (!folder_.empty()) remove_superseded();
}

// A loader would take one of them for the model: the single file before the index, or the other way round.
void WeightOutput::remove_superseded() const {
  std::vector<std::string> kept;
  for (const File& file : files_) kept.push_back(file.file->path().filename().string());
  if (index_) kept.push_back(index_->path().filename().string());
  const std::regex shard("-[0-9]{5}-of-[0-9]{5}\\.safetensors");
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(stem_) || std::ranges::find(kept, name) != kept.end()) continue;
    const std::string rest = name.substr(stem_.size());
    if (rest == ".safetensors" || rest == kIndexEnding || std::regex_match(rest, shard))
      fs::remove(entry.path(), ignored);
  }
}

void WeightOutput::write_index(std::span<const StoredTensor> tensors) {
  std::int64_t bytes = 0;
  for (const StoredTensor& tensor : tensors) bytes += bytes_of(tensor.type).value;
  std::map<std::string, std::string> files;
  for (const File& file : files_) {
    for (const std::string& name : file.names) files[name] = file.file->path().filename().string();
  }
  Json index{{"metadata", {{"total_size", bytes}}}, {"weight_map", Json::object()}};
  for (const auto& [name, file] : files) index["weight_map"][name] = file;
  index_->write(dump_json(index));
}

}  // namespace pp::run
