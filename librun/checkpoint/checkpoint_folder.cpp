#include "librun/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/core/file.h"
#include "libprofile/core/hash.h"

namespace pp::run {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr auto kManifest = "manifest.json";
constexpr auto kUnfinished = ".unfinished-";

fs::path folder_of(const fs::path& folder, Step step) {
  return folder / (std::string(kPrefix) + std::to_string(step));
}

fs::path unfinished_of(const fs::path& folder, Step step) {
  return folder / (kUnfinished + folder_of("", step).filename().string());
}

std::optional<Step> step_of(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(kPrefix)) return std::nullopt;
  Step step = 0;
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc() || rest != end || step < 0) return std::nullopt;
  return step;
}

/// Newest first.
std::map<Step, fs::path, std::greater<>> checkpoints_in(const fs::path& folder) {
  std::map<Step, fs::path, std::greater<>> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (const auto step = step_of(entry.path())) found.emplace(*step, entry.path());
  }
  return found;
}

void verify_part(const fs::path& path, const CheckpointPart& part) {
  ContentHash hash;
  std::int64_t bytes = 0;
  read_file(path, [&](std::string_view piece) {
    hash.update(piece);
    bytes += std::ssize(piece);
  });
  if (bytes != part.bytes) {
    throw Error(ErrorKind::data, path.string() + ": " + std::to_string(bytes) + " bytes, the manifest says " +
                                     std::to_string(part.bytes));
  }
  if (hash.text() != part.hash)
    throw Error(ErrorKind::data, path.string() + ": its checksum is not the one of the manifest");
}

/// Throws unless the checkpoint is whole.
Manifest verify(const fs::path& folder) {
  const fs::path path = folder / kManifest;
  const std::string text = read_file(path);
  const Manifest manifest = with_context(path.string(), [&] { return parse_manifest(text); });
  const std::optional<Step> step = step_of(folder);
  if (step && *step != manifest.position.step) {
    throw Error(ErrorKind::data, path.string() + ": is of step " + std::to_string(manifest.position.step) +
                                     ", not of its folder");
  }
  for (const CheckpointPart& part : manifest.parts) verify_part(folder / part.file, part);
  return manifest;
}

bool is_whole(const fs::path& folder) {
  try {
    verify(folder);
    return true;
  } catch (const Error&) {
    return false;
  }
}

CheckpointPart write_part(const fs::path& folder, const PartContent& content) {
  AtomicFile file(folder / content.file);
  CheckpointPart part;
  part.file = content.file;
  ContentHash hash;
  write_safetensors(content.tensors, [&](std::string_view bytes) {
    file.write(bytes);
    hash.update(bytes);
    part.bytes += std::ssize(bytes);
  });
  file.commit();
  part.hash = hash.text();
  return part;
}

[[noreturn]] void fail(const fs::path& path, const std::error_code& error) {
  throw Error(ErrorKind::run, path.string() + ": cannot be written: " + error.message());
}

// Written by another process, maybe on another host.
void require_part(const fs::path& path, const CheckpointPart& part) {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(path, error);
  if (!error && bytes == static_cast<std::uintmax_t>(part.bytes)) return;
  throw Error(ErrorKind::run, path.string() +
                                  ": is not here as it was written; ranks on several hosts need a "
                                  "folder for checkpoints that all of them share");
}

void move(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) fail(to, error);
}

}  // namespace

std::string part_file(const std::string& content, std::optional<int> writer) {
  return content + (writer ? "-" + std::to_string(*writer) : "") + ".safetensors";
}

bool is_part_of(const std::string& file, const std::string& content) {
  return file == part_file(content) || file.starts_with(content + "-");
}

std::vector<CheckpointPart> write_parts(const fs::path& folder, Step step,
                                        const std::vector<PartContent>& parts) {
  const fs::path unfinished = unfinished_of(folder, step);
  std::error_code error;
  fs::create_directory(unfinished, error);
  if (error) fail(unfinished, error);
  std::vector<CheckpointPart> written;
  try {
    for (const PartContent& part : parts) written.push_back(write_part(unfinished, part));
    flush_folder(unfinished);
  } catch (const Error& failure) {
    fs::remove_all(unfinished, error);
    throw Error(ErrorKind::run, failure.what());
  }
  return written;
}

CheckpointFolder::CheckpointFolder(fs::path folder, int keep, std::optional<Step> resumed)
    : folder_(std::move(folder)), keep_(keep) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw Error(ErrorKind::usage, folder_.string() + ": cannot be made: " + error.message());
  for (const auto& [step, path] : checkpoints_in(folder_)) {
    if (resumed && step <= *resumed) break;
    if (!resumed || is_whole(path)) {
      throw Error(ErrorKind::usage,
                  folder_.string() + ": has a checkpoint of step " + std::to_string(step) +
                      (resumed ? ", later than step " + std::to_string(*resumed) + ", which is resumed" : "") +
                      "; go on from it with --resume " + folder_.string() +
                      ", or give another folder for --checkpoint");
    }
    const fs::path aside = folder_ / ("broken-" + path.filename().string());
    fs::remove_all(aside, error);
    move(path, aside);
  }
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    if (entry.path().filename().string().starts_with(kUnfinished)) fs::remove_all(entry.path(), error);
  }
}

void CheckpointFolder::discard(Step step) {
  std::error_code ignored;
  fs::remove_all(unfinished_of(folder_, step), ignored);
}

std::int64_t CheckpointFolder::commit(const Manifest& manifest, Step step) {
  const fs::path whole = folder_of(folder_, manifest.position.step);
  const fs::path unfinished = unfinished_of(folder_, step);
  std::error_code error;
  std::int64_t bytes = 0;
  try {
    for (const CheckpointPart& part : manifest.parts) {
      require_part(unfinished / part.file, part);
      bytes += part.bytes;
    }
    write_file(unfinished / kManifest, dump_json(to_json(manifest)));
    flush_folder(unfinished);
    move(unfinished, whole);
  } catch (const Error& failure) {
    fs::remove_all(unfinished, error);
    throw Error(ErrorKind::run, failure.what());
  }
  flush_folder(folder_);
  int kept = 0;
  for (const auto& [of, path] : checkpoints_in(folder_)) {
    if (++kept > keep_) fs::remove_all(path, error);
  }
  return bytes;
}

FoundCheckpoint find_checkpoint(const fs::path& folder) {
  FoundCheckpoint found;
  if (fs::exists(folder / kManifest)) {
    found.folder = folder;
    found.manifest = verify(folder);
    return found;
  }
  for (const auto& [step, path] : checkpoints_in(folder)) {
    try {
      found.manifest = verify(path);
      found.folder = path;
      return found;
    } catch (const Error& error) {
      found.skipped.emplace_back(error.what());
    }
  }
  std::string reasons;
  for (const std::string& reason : found.skipped) reasons += "\n  " + reason;
  throw Error(ErrorKind::data,
              folder.string() + ": no checkpoint to go on from; give the folder of --checkpoint" + reasons);
}

}  // namespace pp::run
