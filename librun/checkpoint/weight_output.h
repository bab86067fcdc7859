// Where trained weights go: a safetensors file, or files as Hugging Face's save_pretrained() names them. Free
// of Torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "libprofile/core/file.h"
#include "libprofile/core/units.h"
#include "librun/checkpoint/model_tensors.h"
#include "librun/checkpoint/safetensors.h"

namespace pp::run {

/// Hugging Face's limit of a shard before it became an option.
inline constexpr Bytes kShardBytes{5'000'000'000};

/// The tensors of each shard, as numbers: in order, as many as fit; a larger one stands alone.
std::vector<std::vector<std::size_t>> shards_of(std::span<const ModelTensor> tensors, Bytes limit);

/// `model-00002-of-00005.safetensors`, counted from 1.
std::string shard_name(const std::string& stem, std::size_t number, std::size_t count);

/// The files of one set of weights: open from the beginning, named all at once at the end.
class WeightOutput {
 public:
  /// `path`: a file; a folder (it exists, or the path ends with a slash): model.safetensors in it, or, above
  /// `limit`, shards and their model.safetensors.index.json; an index, NAME.safetensors.index.json: it and its
  /// shards in any case. What an earlier save left under these names goes. Throws pp::Error (usage) where one
  /// cannot be written.
  WeightOutput(const std::filesystem::path& path, std::span<const ModelTensor> tensors,
               Bytes limit = kShardBytes);

  /// The tensors that were named at first, in any order. Throws pp::Error (run) when the disk is full,
  /// (internal) for other names.
  void write(std::span<const StoredTensor> tensors, const Metadata& metadata = {});

 private:
  struct File {
    std::unique_ptr<AtomicFile> file;
    std::vector<std::string> names;
  };
  void open(const std::filesystem::path& path, std::vector<std::string> names);
  void write_index(std::span<const StoredTensor> tensors);
  void remove_superseded() const;

  std::vector<File> files_;
  std::unique_ptr<AtomicFile> index_;  ///< null: there is one file
  std::filesystem::path folder_;       ///< with files of an earlier save; empty: one file alone was named
  std::string stem_;                   ///< of their names
};

}  // namespace pp::run
