#include "librun/checkpoint/checkpoint_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/core/file.h"
#include "libprofile/core/hash.h"
#include "librun/data/records.h"
#include "librun/threads/threads.h"

namespace pp::run {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr auto kUnfinished = ".unfinished-";
constexpr auto kLock = ".lock";
// Read or written at once: what has been hashed is still in the core's cache.
constexpr std::size_t kPiece = std::size_t{1} << 20;
constexpr std::uint64_t kMostManifest = std::uint64_t{64} << 20;

std::optional<Step> step_of(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(kPrefix)) return std::nullopt;
  Step step = 0;
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc() || rest != end || step < 0) return std::nullopt;
  return step;
}

/// Newest first; none where the folder is not there. Throws pp::Error (run) where it cannot be listed: that
/// does not mean that it has none.
std::map<Step, fs::path, std::greater<>> checkpoints_in(const fs::path& folder) {
  std::map<Step, fs::path, std::greater<>> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    if (const auto step = step_of(entry->path())) found.emplace(*step, entry->path());
  }
  if (error && error != std::errc::no_such_file_or_directory)
    throw Error(ErrorKind::run, folder.string() + ": cannot be listed: " + error.message());
  return found;
}

/// What it has read, in pieces; all of it is there at the end where it is kept.
ReadFile verify_part(const fs::path& path, const CheckpointPart& part, bool keep) {
  const FileBytes file(path);
  if (file.size() != static_cast<std::uint64_t>(part.bytes)) {
    throw Error(ErrorKind::data, path.string() + ": " + std::to_string(file.size()) +
                                     " bytes, the manifest says " + std::to_string(part.bytes));
  }
  ContentHash hash;
  const std::size_t room = keep ? static_cast<std::size_t>(file.size()) : kPiece;
  const std::shared_ptr<char[]> bytes = std::make_shared_for_overwrite<char[]>(room);
  for (std::uint64_t at = 0; at < file.size();) {
    const std::span<char> next(bytes.get() + (keep ? at : 0),
                               static_cast<std::size_t>(std::min<std::uint64_t>(kPiece, file.size() - at)));
    file.read(at, next);
    hash.update({next.data(), next.size()});
    at += next.size();
  }
  if (hash.text() != part.hash)
    throw Error(ErrorKind::data, path.string() + ": its checksum is not the one of the manifest");
  return {bytes, file.size()};
}

/// Throws unless the checkpoint is whole, so far as this reader can tell.
FoundCheckpoint verify(const fs::path& folder, const CheckpointReader& reader = {}) {
  const fs::path path = folder / kManifest;
  const FileBytes file(path);
  std::string text(static_cast<std::size_t>(std::min(file.size(), kMostManifest)), '\0');
  file.read(0, text);
  FoundCheckpoint found{.folder = folder,
                        .manifest = with_context(path.string(), [&] { return parse_manifest(text); }),
                        .skipped = {}};
  const Manifest& manifest = found.manifest;
  const std::optional<Step> step = step_of(folder);
  if (step && *step != manifest.position.step) {
    throw Error(ErrorKind::data, path.string() + ": is of step " + std::to_string(manifest.position.step) +
                                     ", not of its folder");
  }
  for (const CheckpointPart& part : manifest.parts) {
    if (part.owner % reader.ranks != reader.rank) continue;
    ReadFile read = verify_part(folder / part.file, part, reader.keep);
    if (reader.keep) found.read.emplace(folder / part.file, std::move(read));
  }
  return found;
}

bool is_whole(const fs::path& folder) {
  try {
    verify(folder);
    return true;
  } catch (const Error&) {
    return false;
  }
}

CheckpointPart write_part(const fs::path& folder, const PartContent& content, int owner) {
  AtomicFile file(folder / content.file);
  CheckpointPart part{.file = content.file, .bytes = 0, .hash = {}, .owner = owner};
  ContentHash hash;
  BackgroundWork background;  // of the training
  const auto write = [&](std::string_view bytes) {
    part.bytes += std::ssize(bytes);
    for (; !bytes.empty(); bytes.remove_prefix(std::min(kPiece, bytes.size()))) {
      background.compute([&] { hash.update(bytes.substr(0, kPiece)); });
      file.write(bytes.substr(0, kPiece));
    }
  };
  write_safetensors(content.tensors, write, content.metadata);
  file.commit();
  part.hash = hash.text();
  return part;
}

[[noreturn]] void fail(const fs::path& path, const std::error_code& error) {
  throw Error(ErrorKind::run, path.string() + ": cannot be written: " + error.message());
}

/// Removes what a step has left, unless it has succeeded: whatever ended it, memory that ran out too.
class Leftovers {
 public:
  explicit Leftovers(std::function<void()> remove) : remove_(std::move(remove)) {}
  ~Leftovers() {
    if (remove_) remove_();
  }
  Leftovers(const Leftovers&) = delete;
  Leftovers& operator=(const Leftovers&) = delete;
  void keep() { remove_ = nullptr; }

 private:
  std::function<void()> remove_;
};

// Written by another process, maybe on another host.
void require_part(const fs::path& path, const CheckpointPart& part) {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(path, error);
  if (!error && bytes == static_cast<std::uintmax_t>(part.bytes)) return;
  throw Error(ErrorKind::data, path.string() +
                                   ": is not here as it was written; ranks on several hosts need a "
                                   "folder for checkpoints that all of them share");
}

void move(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) fail(to, error);
}

}  // namespace

fs::path place_of_checkpoint(const fs::path& folder, Step step) {
  return folder / (std::string(kPrefix) + std::to_string(step));
}

fs::path place_of_parts(const fs::path& folder, Step step) {
  return folder / (kUnfinished + place_of_checkpoint("", step).filename().string());
}

std::string part_file(const std::string& content, std::optional<int> writer) {
  return content + (writer ? "-" + std::to_string(*writer) : "") + ".safetensors";
}

bool is_part_of(const std::string& file, const std::string& content) {
  return file == part_file(content) || file.starts_with(content + "-");
}

std::vector<CheckpointPart> write_parts(const fs::path& folder, Step step,
                                        const std::vector<PartContent>& parts, int owner) {
  const fs::path unfinished = place_of_parts(folder, step);
  std::error_code error;
  fs::create_directory(unfinished, error);
  if (error) fail(unfinished, error);
  std::vector<CheckpointPart> written;
  Leftovers leftovers([&] {
    for (const PartContent& part : parts) fs::remove(unfinished / part.file, error);
  });
  try {
    for (const PartContent& part : parts) written.push_back(write_part(unfinished, part, owner));
    flush_folder(unfinished);
  } catch (const Error& failure) {
    throw Error(ErrorKind::run, failure.what());
  }
  leftovers.keep();
  return written;
}

/// Of a run that writes to the folder, for as long as its process lives: one that was killed lives until its
/// last write has ended. The file says whose it is. File systems without locks go without.
class CheckpointFolder::Lock {
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kLook{20};

 public:
  Lock(const fs::path& folder, const std::string& option, Seconds patience)
      : descriptor_(::open((folder / kLock).c_str(), kMode, 0666)) {
    const auto refuse = [&] {
      const std::error_code error(errno, std::generic_category());
      close();
      throw Error(ErrorKind::usage, folder.string() + ": cannot be written: " + error.message() +
                                        "; give a folder for " + option + " that can");
    };
    if (descriptor_ < 0 || ::access(folder.c_str(), W_OK | X_OK) != 0) refuse();
    for (const auto begin = Clock::now(); Clock::now() - begin < patience; std::this_thread::sleep_for(kLook))
      if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) {
        if (!sign()) refuse();
        return;
      }
    const std::string owner = signature();
    close();
    throw Error(ErrorKind::usage, folder.string() + ": another run" +
                                      (owner.empty() ? "" : " (" + owner + ")") +
                                      " writes its checkpoints here; wait for its end, or give another folder "
                                      "for " +
                                      option);
  }
  ~Lock() { close(); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  static constexpr int kMode = O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK;
  void close() const {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  bool sign() const {
    std::array<char, 256> host{};
    ::gethostname(host.data(), host.size() - 1);
    const std::string text = "process " + std::to_string(::getpid()) + " on " + host.data() + '\n';
    if (::ftruncate(descriptor_, 0) != 0) return false;
    ssize_t written = -1;
    do written = ::pwrite(descriptor_, text.data(), text.size(), 0);
    while (written < 0 && errno == EINTR);
    return written > 0;
  }
  std::string signature() const {
    std::array<char, 300> text{};
    const ssize_t bytes = ::pread(descriptor_, text.data(), text.size(), 0);
    const std::string_view all(text.data(), static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
    return std::string(all.substr(0, all.find('\n')));
  }

  int descriptor_;
};

CheckpointFolder::CheckpointFolder(fs::path folder, int keep, std::optional<Step> resumed,
                                   const std::string& option, Seconds patience)
    : folder_(std::move(folder)), keep_(keep) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw Error(ErrorKind::usage, folder_.string() + ": cannot be made: " + error.message());
  lock_ = std::make_shared<const Lock>(folder_, option, patience);
  for (const auto& [step, path] : checkpoints_in(folder_)) {
    if (resumed && step <= *resumed) break;
    if (!resumed || is_whole(path)) {
      throw Error(ErrorKind::usage,
                  folder_.string() + ": has a checkpoint of step " + std::to_string(step) +
                      (resumed ? ", later than step " + std::to_string(*resumed) + ", which is resumed" : "") +
                      "; go on from it with --resume " + folder_.string() + ", or give another folder for " +
                      option);
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
  fs::remove_all(place_of_parts(folder_, step), ignored);
}

std::int64_t CheckpointFolder::commit(const Manifest& manifest, Step step, std::optional<Step> best) {
  const fs::path whole = place_of_checkpoint(folder_, manifest.position.step);
  const fs::path unfinished = place_of_parts(folder_, step);
  std::error_code error;
  std::int64_t bytes = 0;
  Leftovers leftovers([&] { fs::remove_all(unfinished, error); });
  try {
    for (const CheckpointPart& part : manifest.parts) {
      require_part(unfinished / part.file, part);
      bytes += part.bytes;
    }
    write_file(unfinished / kManifest, dump_json(to_json(manifest)));
    flush_folder(unfinished);
    move(unfinished, whole);
  } catch (const Error& failure) {
    throw Error(failure.kind() == ErrorKind::usage ? ErrorKind::run : failure.kind(), failure.what());
  }
  leftovers.keep();
  flush_folder(folder_);
  int kept = 0;
  for (const auto& [of, path] : checkpoints_in(folder_)) {
    if (++kept > keep_ && of != best) fs::remove_all(path, error);
  }
  return bytes;
}

bool has_checkpoints(const fs::path& folder) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (status.type() == fs::file_type::not_found) return false;
  if (!error) const fs::directory_iterator entries(folder, error);
  if (error) throw Error(ErrorKind::usage, folder.string() + ": cannot be read: " + error.message());
  return fs::exists(folder / kManifest, error) || !checkpoints_in(folder).empty();
}

std::vector<fs::path> checkpoints_of(const fs::path& folder) {
  std::error_code ignored;
  if (has_checkpoints(folder) && fs::exists(folder / kManifest, ignored)) return {folder};
  std::vector<fs::path> all;
  for (const auto& [step, path] : checkpoints_in(folder)) all.push_back(path);
  return all;
}

Step step_of_checkpoint(const fs::path& checkpoint) { return step_of(checkpoint).value_or(0); }

FoundCheckpoint find_checkpoint(const fs::path& folder, const CheckpointReader& reader) {
  return find_checkpoint(checkpoints_of(folder), folder, reader);
}

FoundCheckpoint find_checkpoint(const std::vector<fs::path>& newest_first, const fs::path& folder,
                                const CheckpointReader& reader) {
  const auto begin = std::chrono::steady_clock::now();
  const auto await = [&](const fs::path& file) {
    std::error_code ignored;
    while (!fs::exists(file, ignored) && std::chrono::steady_clock::now() - begin < reader.patience)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
  };
  std::vector<std::string> skipped;
  for (const fs::path& path : newest_first) {
    FoundCheckpoint found;
    std::string mine;
    try {
      await(path / kManifest);
      found = verify(path, reader);
    } catch (const Error& error) {
      mine = error.what();
    }
    std::string why = reader.agree(mine);
    if (why.empty()) {
      found.skipped = std::move(skipped);
      return found;
    }
    if (path == folder) throw Error(ErrorKind::data, why);
    skipped.push_back(std::move(why));
  }
  std::string reasons;
  for (const std::string& reason : skipped) reasons += "\n  " + reason;
  throw Error(ErrorKind::data,
              folder.string() + ": no checkpoint to go on from; give the folder of --checkpoint" + reasons);
}

std::vector<fs::path> files_of(const FoundCheckpoint& checkpoint, const std::string& content) {
  std::vector<fs::path> files;
  for (const CheckpointPart& part : checkpoint.manifest.parts) {
    if (is_part_of(part.file, content)) files.push_back(checkpoint.folder / part.file);
  }
  if (!files.empty()) return files;
  throw Error(ErrorKind::data, checkpoint.folder.string() + ": the manifest lists no " + part_file(content));
}

}  // namespace pp::run
