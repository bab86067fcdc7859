// Measures the links between processes, by calls between ranks that return when they are done and wait as
// pp-run does. Plain values only: apps include this header.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "libprofile/core/cluster.h"
#include "librun/links/link_fit.h"
#include "librun/transport/peers.h"

namespace pp::run {

class DeviceGroup;

/// What is measured: how bytes go between the memories of this rank and of others. Calls return when they are
/// there, and come from one thread.
class LinkMedium {
 public:
  virtual ~LinkMedium() = default;
  /// Of the messages and sums that follow.
  virtual void set_size(Bytes size) = 0;
  virtual void send(int to) = 0;
  virtual void receive(int from) = 0;
  virtual void all_reduce() = 0;
  /// What its messages are; null where no host's processor moves them on.
  virtual Peers* messages() { return nullptr; }
  /// This rank's, without number; a CPU's memory is its whole host's.
  virtual Device device() const = 0;
};

/// Memory of the hosts, by the ranks' own messages.
std::unique_ptr<LinkMedium> make_host_medium(Peers& peers);
/// Memory of GPUs by NCCL: the rank's GPU is the one of `devices` that its place on its host names, from the
/// first one again behind the last. Throws pp::Error (usage), on every rank, for two ranks on one GPU and for a
/// build without NCCL.
std::unique_ptr<LinkMedium> make_gpu_medium(Peers& peers, std::span<const int> devices);
/// The medium of a group that all ranks form, in their order; `device` is what this rank says of its own.
std::unique_ptr<LinkMedium> make_group_medium(std::shared_ptr<DeviceGroup> group, Device device);

/// Every pair of ranks, one pair at a time, and the all-reduce of all. Clocks of processes differ, so a
/// message's time is half of a round trip; its bytes are in the receiver's memory then. Where hosts move the
/// messages on: what that keeps them from (message_cost.h), and whether both directions go at once. Each rank
/// is one device; a CPU's cores are those it may run on, its share of its host's memory is that of the ranks
/// there. Levels are found by link_levels.h; the largest within a host is called `node`, the one that joins
/// hosts `cluster`. All ranks call it; rank 0 gets the cluster. Throws pp::Error (usage), on every rank, for
/// fewer than two ranks and for a sweep without two sizes. `progress` is called on rank 0 with a share in [0,
/// 1].
std::optional<Cluster> measure_rank_links(Peers& peers, LinkMedium& medium, const LinkSweep& sweep,
                                          const std::function<void(double)>& progress = {});

void wait_for(Posted& posted);

/// A message of as many bytes at both ends.
void send_to(Peers& peers, int to, std::span<const std::byte> bytes);
void receive_from(Peers& peers, int from, std::span<std::byte> bytes);

/// What every rank brings, in the order of the ranks; all of them call it.
std::vector<std::string> gather(Peers& peers, std::string mine);

/// All ranks, for what they do at once; all of them make one, and call in the same order.
class AllRanks {
 public:
  /// `peers` must outlive it.
  explicit AllRanks(Peers& peers);
  /// Every rank gets the sums over all ranks.
  void sum(std::span<float> values);
  /// All ranks are here before anybody goes on.
  void meet();

 private:
  Peers& peers_;
  int group_;
};

}  // namespace pp::run
