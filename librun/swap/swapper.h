// A worker's side of swapping: brings stages to its device and back by a thread (on a GPU with a stream of
// its own), while the worker computes, and counts what it copies.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "libprofile/core/units.h"
#include "libprofile/device/memory_meter.h"
#include "libprofile/device/queued_work.h"
#include "librun/stage/stage.h"
#include "librun/swap/host_store.h"
#include "librun/swap/residency.h"
#include "librun/threads/coordinator.h"
#include "librun/threads/threads.h"

namespace pp::run {

/// Belongs to one worker, whose cores the thread inherits.
class Copier {
 public:
  using Ticket = std::int64_t;
  struct Copy {
    at::Tensor to, from;
  };
  /// Called by the thread when the values are there, with what copying took.
  using Done = std::function<void(Seconds)>;

  Copier(Coordinator& run, WorkerId worker, at::Device device);
  ~Copier();
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  /// Behind all that the calling thread has handed to the device.
  Ticket begin(std::vector<Copy> copies, Done done);
  /// Blocks until it is done. Throws as Monitor::wait does.
  void await(Ticket ticket);

 private:
  struct Job {
    std::vector<Copy> copies;
    Done done;
    std::unique_ptr<profile::DeviceEvent> ready;  ///< null on a CPU
  };

  void live() noexcept;
  void run(const Job& job) const;

  Coordinator& run_;
  WorkerId worker_;
  at::Device device_;
  Monitor monitor_;
  std::deque<Job> jobs_;
  Ticket begun_ = 0, ended_ = 0;
  bool closed_ = false;
  Threads thread_;
};

/// Lives in its worker's thread. All must outlive it.
class Swapper {
 public:
  Swapper(Coordinator& run, HostStore& store, const plan::Plan& plan, WorkerId worker, at::Device device,
          SwapRecord& record);

  /// What is on the host is charged here.
  const profile::MemoryAccount& host() const { return host_; }

  /// A stage that has just been made: its weights become the host's copy, after so many updates, where this
  /// worker is their home; nothing of it stays on the device.
  void adopt(StageId id, Stage& stage, std::int64_t updates);

  /// Whether loads from now on are counted.
  void count(bool counts) { counts_ = counts; }

  /// Begins to load the copy of `updates` updates, which it waits for, with what an update needs or without.
  void load(StageId id, Stage& stage, std::int64_t updates, Stage::Hold hold);
  /// Blocks until what was begun of the stage is done.
  void await(StageId id);
  /// Behind an update: begins to copy all of it to the host.
  void write_back(StageId id, Stage& stage, std::int64_t updates);
  /// When that is done: nothing of the stage is on the device any more.
  void evict(StageId id, Stage& stage);

 private:
  Coordinator& run_;
  HostStore& store_;
  const plan::Plan& plan_;
  WorkerId worker_;
  at::Device device_;
  SwapRecord& record_;
  bool counts_ = false;
  profile::MemoryAccount host_;
  std::map<StageId, Copier::Ticket> under_way_;  ///< the last copy of each stage
  Copier copier_;
};

/// What a worker hands to an operation of its own: on the device until its task is over, then on the host.
class Shelf {
 public:
  /// Edge, whether it is a gradient, number of the message.
  using Key = std::tuple<int, bool, std::int64_t>;
  struct Item {
    at::Tensor tensor;
    at::Tensor on_host = {};  ///< the same values; undefined: they have not been there
  };

  void put(const Key& key, at::Tensor tensor);
  /// All that is still on the device goes to the host.
  void to_host(const profile::MemoryAccount& host);
  /// On the device.
  Item take(const Key& key, const at::Device& device);

 private:
  std::map<Key, Item> items_;
  std::vector<Key> here_;  ///< on the device
};

}  // namespace pp::run
