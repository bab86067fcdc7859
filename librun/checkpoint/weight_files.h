// Where given weights stand: a file, the shards that an index lists, or a checkpoint's parts. Free of Torch.
#pragma once

#include <filesystem>
#include <vector>

namespace pp::run {

/// The safetensors files of `path`: itself where it is a file; of a folder the shards that its
/// model.safetensors.index.json lists (as Hugging Face writes it) or its model.safetensors, else the parts of
/// its newest checkpoint; of an index its shards. Throws pp::Error (data), also where a shard lacks a tensor
/// that the index says it has, and (usage) for a folder that cannot be read.
std::vector<std::filesystem::path> weight_files(const std::filesystem::path& path);

}  // namespace pp::run
