#include "librun/drive/gather_memory.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/file.h"
#include "librun/checkpoint/checkpoint_folder.h"
#include "librun/data/byte_source.h"
#include "librun/setup/start.h"
#include "librun/threads/coordinator.h"
#include "librun/transport/packed.h"
#include "librun/transport/rank_errors.h"
#include "librun/transport/rank_stream.h"

namespace pp::run {

namespace {

namespace fs = std::filesystem;

constexpr int kTag = 3;

/// What the ranks have of one checkpoint.
struct Pieces {
  Manifest manifest;
  std::map<std::string, std::set<int>> holders;  ///< of a file
};
using Checkpoints = std::map<std::pair<Step, std::string>, Pieces, std::greater<>>;  ///< by step and manifest

/// The checkpoints of a folder, each with its manifest and the files that have their sizes. Damaged ones are
/// passed over.
std::string list_of(const fs::path& folder) {
  Packer list;
  for (const fs::path& path : checkpoints_of(folder)) {
    try {
      const std::string text = read_file(path / kManifest);
      std::vector<std::string> files;
      for (const CheckpointPart& part : parse_manifest(text).parts) {
        std::error_code none;
        if (fs::file_size(path / part.file, none) == static_cast<std::uintmax_t>(part.bytes))
          files.push_back(part.file);
      }
      list.add(text).add(files.size());
      for (const std::string& file : files) list.add(file);
    } catch (const Error&) {
      continue;
    }
  }
  return list.take();
}

Checkpoints joined(const std::vector<std::string>& lists) {
  Checkpoints all;
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    for (Unpacker from(lists[rank]); !from.empty();) {
      const auto text = from.take<std::string>();
      Manifest manifest = parse_manifest(text);
      Pieces& pieces = all[{manifest.position.step, text}];
      pieces.manifest = std::move(manifest);
      for (auto left = from.take<std::size_t>(); left > 0; --left)
        pieces.holders[from.take<std::string>()].insert(static_cast<int>(rank));
    }
  }
  return all;
}

bool whole(const Pieces& pieces) {
  return std::ranges::all_of(pieces.manifest.parts,
                             [&](const CheckpointPart& part) { return pieces.holders.contains(part.file); });
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Error(ErrorKind::run, folder.string() + ": cannot be made: " + error.message());
}

/// One part to the hosts that lack it, from one that has it; all of them in the same order.
class Delivery {
 public:
  Delivery(Mailbox& mailbox, const Placement& placement, fs::path checkpoint)
      : mailbox_(mailbox), placement_(placement), checkpoint_(std::move(checkpoint)) {}

  void deliver(const CheckpointPart& part, const std::set<int>& holders) {
    const int giver = *holders.begin();
    for (int host = 0; host < placement_.hosts(); ++host) {
      const int taker = placement_.ranks_on(host).front();
      if (holders.contains(taker)) continue;
      if (mailbox_.rank() == giver) give(part, taker);
      if (mailbox_.rank() == taker) take(part, giver);
    }
  }
  /// Why something could not be read or written here.
  const std::string& failure() const { return failure_; }
  void attempt(const std::function<void()>& act) {
    if (!failure_.empty()) return;
    try {
      act();
    } catch (const Error& error) {
      failure_ = error.what();
    }
  }

 private:
  std::function<void()> patience(int other) const {
    return [begin = Coordinator::Clock::now(), other, most = mailbox_.patience()] {
      if (Coordinator::Clock::now() - begin < most) return;
      throw LostRank(ErrorKind::run, "rank " + std::to_string(other) +
                                         " has sent no part of a checkpoint for " + to_text(most) +
                                         ": it hangs, was stopped, or cannot be reached");
    };
  }

  // Of what cannot be read the rest is not sent: the taker finds the part too short.
  void give(const CheckpointPart& part, int taker) {
    std::optional<FileBytes> file;
    attempt([&] { file.emplace(checkpoint_ / part.file); });
    std::string piece;
    for (std::uint64_t at = 0;; at += piece.size()) {
      piece.resize(std::min<std::uint64_t>(RankStream::kRoom, static_cast<std::uint64_t>(part.bytes) - at));
      attempt([&] { file->read(at, piece); });
      if (!failure_.empty()) piece.clear();
      RankStream(mailbox_.peers(), taker, kTag, patience(taker)).send_message(piece);
      if (piece.size() < RankStream::kRoom) return;
    }
  }

  void take(const CheckpointPart& part, int giver) {
    std::optional<AtomicFile> file;
    attempt([&] { file.emplace(checkpoint_ / part.file); });
    std::int64_t bytes = 0;
    for (std::size_t size = RankStream::kRoom; size == RankStream::kRoom;) {
      RankStream from(mailbox_.peers(), giver, kTag, patience(giver));
      const std::string_view piece = from.receive_message();
      size = piece.size();
      bytes += std::ssize(piece);
      attempt([&] { file->write(piece); });
    }
    if (bytes == part.bytes) attempt([&] { file->commit(); });
  }

  Mailbox& mailbox_;
  const Placement& placement_;
  fs::path checkpoint_;
  std::string failure_;
};

void agree_on(Mailbox& mailbox, const std::string& failure) {
  const std::vector<std::string> all = gather_everywhere(mailbox, failure);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    const std::string why = "rank " + std::to_string(rank) + ": " + all[rank] +
                            "; make room, or leave --buddy out to go on from the disk";
    if (mailbox.rank() == 0) throw Error(ErrorKind::run, why);
    throw SaidElsewhere(ErrorKind::run, why);
  }
}

}  // namespace

void gather_memory(Mailbox& mailbox, const RunOptions& options, const Placement& placement) {
  if (options.buddy.empty() || placement.hosts() == 1 || options.resume.empty() || !goes_on_from_own(options))
    return;
  const bool leads = placement.leads_host();
  Checkpoints all = joined(gather_everywhere(mailbox, leads ? list_of(options.buddy) : ""));
  const auto newest = std::ranges::find_if(all, [](const auto& entry) { return whole(entry.second); });
  const Step step = newest == all.end() ? -1 : newest->first.first;
  Delivery delivery(mailbox, placement, place_of_checkpoint(options.buddy, step));
  if (newest != all.end()) {
    const fs::path checkpoint = place_of_checkpoint(options.buddy, step);
    if (leads) delivery.attempt([&] { make_folder(checkpoint); });
    for (const CheckpointPart& part : newest->second.manifest.parts)
      delivery.deliver(part, newest->second.holders.at(part.file));
    if (leads) delivery.attempt([&] { write_file(checkpoint / kManifest, newest->first.second); });
  }
  agree_on(mailbox, delivery.failure());
  if (!leads) return;
  for (const fs::path& path : checkpoints_of(options.buddy)) {
    std::error_code ignored;
    if (step_of_checkpoint(path) != step) fs::remove_all(path, ignored);
  }
}

}  // namespace pp::run
