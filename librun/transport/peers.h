// The processes that train one plan together: messages that never block, between ranks and by tag, and the
// memory of those that no code waits for any longer. What the transport, the collectives and the control
// messages between ranks are made of; MPI is one of its forms, a test's threads are another. Plain values
// only: apps include this header.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/units.h"

namespace pp::run {

/// The library may still read or write it, so it lives as long as the process.
inline void leave_to_library(std::shared_ptr<void> memory) {
  static auto* const mutex = new std::mutex;
  static auto* const kept = new std::vector<std::shared_ptr<void>>;
  const std::lock_guard held(*mutex);
  kept->push_back(std::move(memory));
}

/// A message on its way. Its bytes must stay where they are until it is done.
class Posted {
 public:
  virtual ~Posted() = default;
  /// Never blocks; asking is what moves messages on.
  virtual bool done() = 0;
  /// When done: of what was received.
  virtual std::size_t bytes() const = 0;
};

/// One rank's end. Any thread may call; calls are short.
class Peers {
 public:
  /// Messages of different lanes never meet.
  enum class Lane { tensors, sums, server };
  static constexpr std::size_t kLanes = 3;
  struct Address {
    Lane lane = Lane::tensors;
    int rank = 0;
    int tag = 0;
  };
  /// When a message counts as sent: when its bytes may be changed, or when the other rank has room for it.
  enum class Sent { gone, taken };

  Peers(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~Peers() = default;
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Ranks of equal names are on one machine.
  virtual std::string host() const = 0;
  /// 0 to this.
  virtual int largest_tag() const = 0;

  /// Messages of one address arrive in the order in which they are sent, in the rooms that are made for them.
  /// `room`: bytes that the receiver has made room for, at least those of the message. A rank may send to
  /// itself.
  virtual std::unique_ptr<Posted> send(const Address& to, std::span<const std::byte> bytes, std::size_t room,
                                       Sent sent) = 0;
  virtual std::unique_ptr<Posted> receive(const Address& from, std::span<std::byte> room) = 0;

  /// Of any size below 2 GiB; nobody need expect it.
  virtual std::unique_ptr<Posted> send_letter(int to, std::span<const std::byte> bytes) = 0;
  struct ControlMessage {
    int from = 0;
    std::string bytes;
  };
  /// The next one that has come; those of one rank in the order in which they were sent.
  virtual std::optional<ControlMessage> next_control_message() = 0;

  enum class Element { float32, float64 };
  /// A group for sums: these ranks call it, in the same order as all others that they have in common. Blocks.
  virtual int join(std::span<const int> ranks) = 0;
  /// In place the sum over the ranks of a group, which call it in the same order, as the library likes to add.
  virtual std::unique_ptr<Posted> sum(int group, std::span<std::byte> elements, Element type) = 0;

  /// Moves on what was sent; whether any of it is still on its way that is too large to leave by itself.
  virtual bool sending() = 0;

  /// Ends all ranks at once, with this exit code.
  [[noreturn]] virtual void abort(int exit_code) = 0;

 private:
  int rank_, size_;
};

/// From one look at what is on its way to the next, by who moves it on beside the workers: the shorter one
/// while something large is being sent, else longer and longer.
inline constexpr std::chrono::microseconds kShortestRest(200), kLongestRest(8000);

/// The ranks of mpirun or srun, of which this one calls itself `me` when the others do not come. At most once
/// in a process; when it is destroyed, all ranks must have agreed to end. Throws pp::Error (usage) in a build
/// without MPI.
std::unique_ptr<Peers> join_mpi_peers(std::string me, Seconds patience = std::chrono::minutes(10));

}  // namespace pp::run
