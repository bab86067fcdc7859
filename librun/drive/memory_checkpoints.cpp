#include "librun/drive/memory_checkpoints.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "libprofile/core/file.h"
#include "librun/data/byte_source.h"
#include "librun/threads/threads.h"
#include "librun/transport/packed.h"
#include "librun/transport/rank_stream.h"

namespace pp::run {

namespace fs = std::filesystem;

namespace {

constexpr int kParts = 0, kOrders = 1, kAnswers = 2;  // tags

// Rank 0 makes its checkpoint on all hosts before the next one is begun, so with two the newest that is whole
// over all of them is never removed.
int kept(const Placement& placement) { return placement.hosts() > 1 ? 2 : 1; }

std::function<void()> until_stopped(const Job& job) {
  return [&job] {
    if (job.coordinator.stopped()) throw Stopped{};
  };
}

/// Which rank of the next host has the copies of a rank's parts.
int neighbour_of(const Placement& placement, int rank) {
  const int host = placement.host_of[static_cast<std::size_t>(rank)];
  const std::vector<int> beside = placement.ranks_on(host);
  const std::vector<int> next = placement.ranks_on((host + 1) % placement.hosts());
  const auto position = static_cast<std::size_t>(std::ranges::find(beside, rank) - beside.begin());
  return next[position % next.size()];
}

void send_parts(RankStream& to, const fs::path& folder, const std::vector<CheckpointPart>& parts) {
  Packer header;
  header.add(parts.size());
  for (const CheckpointPart& part : parts) header.add(part.file);
  to.send(header.take());
  std::string piece;
  for (const CheckpointPart& part : parts) {
    const FileBytes file(folder / part.file);
    for (std::uint64_t at = 0;; at += piece.size()) {
      piece.resize(static_cast<std::size_t>(std::min<std::uint64_t>(RankStream::kRoom, file.size() - at)));
      file.read(at, piece);
      to.send_message(piece);
      if (piece.size() < RankStream::kRoom) break;
    }
  }
}

/// Takes everything, also what cannot be written; throws pp::Error (run) at the end.
void receive_parts(RankStream& from, const fs::path& folder) {
  const std::string text = from.receive();
  Unpacker header(text);
  std::string failure;
  const auto attempt = [&](auto&& write) {
    if (!failure.empty()) return;
    try {
      write();
    } catch (const Error& error) {
      failure = error.what();
    }
  };
  for (auto left = header.take<std::size_t>(); left > 0; --left) {
    const auto name = header.take<std::string>();
    std::optional<AtomicFile> file;
    attempt([&] { file.emplace(folder / name); });
    for (std::size_t size = RankStream::kRoom; size == RankStream::kRoom;) {
      const std::string_view piece = from.receive_message();
      size = piece.size();
      attempt([&] { file->write(piece); });
    }
    attempt([&] { file->commit(); });
  }
  if (!failure.empty()) throw Error(ErrorKind::run, failure);
}

}  // namespace

struct MemoryCheckpoints::Order {
  enum class Kind : char { commit, discard, copy, clear, release };
  Kind kind = Kind::release;
  Step step = 0;  ///< of the parts; Kind::copy: of the checkpoint
  std::string manifest = {};
};

MemoryCheckpoints::MemoryCheckpoints(const RunOptions& options, const Placement& placement,
                                     std::optional<Step> resumed)
    : path_(options.buddy), disk_(options.checkpoint), placement_(placement) {
  if (placement_.leads_host()) folder_.emplace(path_, kept(placement_), resumed, "--buddy");
}

void MemoryCheckpoints::exchange(const Job& job, Step step, const std::vector<CheckpointPart>& mine) {
  if (placement_.hosts() == 1) return;
  const fs::path folder = place_of_parts(path_, step);
  std::error_code ignored;
  fs::create_directory(folder, ignored);
  std::exception_ptr error;
  Threads receiving;
  receiving.add([&] {
    try {
      for (int rank = 0; rank < placement_.ranks; ++rank) {
        if (neighbour_of(placement_, rank) != placement_.rank) continue;
        RankStream from(*job.setup.peers, rank, kParts, until_stopped(job));
        receive_parts(from, folder);
      }
    } catch (...) {
      error = std::current_exception();
    }
  });
  RankStream to(*job.setup.peers, neighbour_of(placement_, placement_.rank), kParts, until_stopped(job));
  send_parts(to, folder, mine);
  receiving.join();
  if (error) std::rethrow_exception(error);
}

std::vector<int> MemoryCheckpoints::other_leaders() const {
  std::vector<int> leaders;
  for (int host = 1; host < placement_.hosts(); ++host) leaders.push_back(placement_.ranks_on(host).front());
  return leaders;
}

std::int64_t MemoryCheckpoints::execute(const Order& order) {
  using Parts = CheckpointFolder::Parts;
  // Where the training went on from memory, every host has parts of other ranks than there are now.
  const auto from_here = [&](const CheckpointPart& part) {
    if (placement_.hosts() == 1) return true;
    return placement_.host_of[static_cast<std::size_t>(part.owner % placement_.ranks)] == placement_.host();
  };
  switch (order.kind) {
    case Order::Kind::commit:
      return folder_->commit(parse_manifest(order.manifest), order.step,
                             placement_.hosts() > 1 ? Parts::some : Parts::all);
    case Order::Kind::discard: folder_->discard(order.step); break;
    case Order::Kind::copy: copy_parts(place_of_checkpoint(path_, order.step), disk_, from_here); break;
    case Order::Kind::clear: folder_->clear(); break;
    case Order::Kind::release: break;
  }
  return 0;
}

std::int64_t MemoryCheckpoints::execute_everywhere(const Job& job, const Order& order) {
  const std::string bytes = Packer().add(order.kind).add(order.step).add(order.manifest).take();
  for (const int rank : other_leaders())
    RankStream(*job.setup.peers, rank, kOrders, until_stopped(job)).send(bytes);
  if (order.kind == Order::Kind::release) return 0;
  std::string failure;
  std::int64_t result = 0;
  try {
    result = execute(order);
  } catch (const Error& error) {
    failure = error.what();
  }
  for (const int rank : other_leaders()) {
    const std::string answer = RankStream(*job.setup.peers, rank, kAnswers, until_stopped(job)).receive();
    if (failure.empty() && !answer.empty()) failure = "rank " + std::to_string(rank) + ": " + answer;
  }
  if (!failure.empty()) throw Error(ErrorKind::run, failure);
  return result;
}

std::int64_t MemoryCheckpoints::commit(const Job& job, const Manifest& manifest, Step step) {
  return execute_everywhere(job, {Order::Kind::commit, step, dump_json(to_json(manifest))});
}

void MemoryCheckpoints::discard(const Job& job, Step step) {
  execute_everywhere(job, {Order::Kind::discard, step});
}

void MemoryCheckpoints::copy(const Job& job, Step of, CheckpointFolder& disk) {
  const fs::path file = place_of_checkpoint(path_, of) / kManifest;
  try {
    execute_everywhere(job, {Order::Kind::copy, of});
    disk.commit(with_context(file.string(), [&] { return parse_manifest(read_file(file)); }), of);
  } catch (...) {
    disk.discard(of);
    throw;
  }
}

void MemoryCheckpoints::clear(const Job& job) { execute_everywhere(job, {Order::Kind::clear}); }

void MemoryCheckpoints::release(const Job& job) { execute_everywhere(job, {Order::Kind::release}); }

void MemoryCheckpoints::follow(const Job& job) {
  if (!placement_.leads_host()) return;
  for (;;) {
    const std::string bytes = RankStream(*job.setup.peers, 0, kOrders, until_stopped(job)).receive();
    Unpacker from(bytes);
    Order order;
    from.read(order.kind);
    from.read(order.step);
    from.read(order.manifest);
    if (order.kind == Order::Kind::release) return;
    std::string failure;
    try {
      execute(order);
    } catch (const Error& error) {
      failure = error.what();
    }
    RankStream(*job.setup.peers, 0, kAnswers, until_stopped(job)).send(failure);
  }
}

}  // namespace pp::run
