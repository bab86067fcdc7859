// What the devices of a stage offer to it: speed, links, all-reduce, memory. One seat for every number of
// replicas where all devices are alike, else one for every span of an ordered list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "libplan/cost/links.h"
#include "libplan/cost/stage_cost.h"
#include "libplan/cost/stage_memory.h"
#include "libprofile/core/cluster.h"
#include "libprofile/core/index.h"

namespace pp::plan {

/// The way from a stage to the stage next to it.
struct Gate {
  Link link;
  bool shared_card = false;  ///< it leaves the node
};

/// Devices of a stage that have the same times but for their speed.
struct KindSeat {
  int kind = 0;         ///< Device::profile
  double slowness = 1;  ///< times on the slowest, relative to the profile's
};

struct Seat {
  std::vector<KindSeat> kinds = std::vector<KindSeat>(1);  ///< each kind once
  double per_card = 1;                                     ///< most of its devices behind one network card
  bool even = true;                                        ///< as many behind every one
  Gate in{}, out{};  ///< to the stage in front, to the one behind; unset at the ends of a list
  std::vector<AllReduceForm> all_reduce{};
  ServerWays server{};
  MemoryLimit limit{};  ///< of its smallest device
};

/// A cluster and a list of positions in it, the device of the last layers first, with the bytes each may use
/// (in the order of the list).
struct OrderedDevices {
  const Cluster& cluster;
  std::span<const int> positions;
  std::span<const std::int64_t> bytes;
};

/// To which stages a stage hands over by reference: its neighbours where the device next to its span allows it,
/// which says too little of stages over several nodes; or none unless all devices of the list do.
enum class Neighbours { next_device, all_devices };

struct Seats {
  bool uniform = true;  ///< one per number of replicas
  int devices = 0;
  std::vector<Seat> all{};  ///< by index()

  std::size_t index(DeviceSpan span) const {
    return pp::at(span.first * (uniform ? 0 : devices) + span.count - 1);
  }
  const Seat& at(DeviceSpan span) const { return all[index(span)]; }
};

/// Up to `devices` devices that are all alike, as fast as the profile's, behind one kind of link. `least`: they
/// take the least all-reduce that there is in this cluster, else a ring or a tree over that link.
Seats equal_seats(int devices, const Links& links, const MemoryLimit& limit, const Cluster* least = nullptr);

/// Of equal seats those of stages with `replicas`: on the first devices of the cluster, of which a stage before
/// and one behind leave the node. Times of cuts are at most that.
void align(Seats& seats, const Cluster& cluster, int replicas);

/// `speed`: of the device that the times of the profile are of. A stage has the best link from one of its
/// devices to the position next to it; replicas of one node share its card for what leaves it.
Seats listed_seats(const OrderedDevices& devices, double speed, std::int64_t context, Neighbours neighbours);

/// What no stage is better off than, wherever it runs: q replicas as fast as the q-th fastest device and as
/// large as the q-th largest, the cheapest all-reduce among any q and the fastest link of the cluster, to a
/// server too. `slowness`: of each device of the list.
Seats best_seats(const OrderedDevices& devices, std::vector<double> slowness, std::int64_t context);

}  // namespace pp::plan
