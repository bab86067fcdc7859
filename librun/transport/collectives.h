// What several workers do together: sums over replicas, and what copies of shared weights bring together.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "libprofile/core/units.h"
#include "librun/threads/coordinator.h"
#include "librun/transport/slices.h"

namespace pp::run {

/// Workers that meet, in the order in which they count.
using Group = std::vector<WorkerId>;

/// A view of the slice of a vector.
inline at::Tensor part_of(const at::Tensor& flat, const Slice& slice) {
  return flat.narrow(0, slice.begin, slice.length());
}

/// What a worker waits for in a sum.
inline constexpr auto kOtherMembers = "the other workers of an all-reduce";

/// A sum on its way, while its member computes. The members of a group bring their sums on in the order in
/// which they began; nobody else touches the vectors until they are finished. Throws as Monitor::wait does.
class PendingSum {
 public:
  virtual ~PendingSum() = default;
  /// Adds this member's share and hands it out if what the others bring is here; whether that is done.
  virtual bool advance() = 0;
  /// The same, waiting for it; the host does not wait for a device.
  virtual void add() = 0;
  /// Behind add(): waits until the vector holds the sum, or will before anything that is handed to its device
  /// from now on.
  virtual void finish() = 0;
  /// Behind finish(): how long the additions of add() took; waits for a device to have made them.
  virtual Seconds spent() = 0;
};

/// Adds and finishes. Returns the seconds of the additions.
inline Seconds complete(PendingSum& sum) {
  sum.add();
  sum.finish();
  return sum.spent();
}

/// Groups are numbered by whoever makes the object. The members of a group call the same functions in the same
/// order; every call blocks until all of them have called. Throws as Monitor::wait does.
class Collectives {
 public:
  using Parts = std::vector<std::vector<at::Tensor>>;

  virtual ~Collectives() = default;

  /// In place the sum over the members' vectors, complete and of one length: ((m0 + m1) + m2) + ..., the same
  /// bits for everybody. Undefined vectors stay so. Returns the seconds of this worker's own additions, waiting
  /// left out.
  virtual Seconds sum(std::size_t group, WorkerId me, const at::Tensor& mine) = 0;
  /// Whether a group's sums go on beside its members' own work; where not, they are not begun but called for.
  virtual bool overlaps(std::size_t group) const = 0;
  /// Begins the same sum, of a defined vector.
  virtual std::unique_ptr<PendingSum> begin_sum(std::size_t group, WorkerId me, const at::Tensor& mine) = 0;

  /// A reduce-scatter: each slice's owner has the same sum of it, in place, the same bits; what else the
  /// vectors hold is lost. `slices` are the same for all members and do not overlap; of a defined vector.
  /// Returns as sum() does. A member sends every element that another one owns once.
  virtual Seconds reduce(std::size_t group, WorkerId me, const at::Tensor& mine,
                         std::span<const Slice> slices) = 0;
  /// Begins the same, where the group overlaps().
  virtual std::unique_ptr<PendingSum> begin_reduce(std::size_t group, WorkerId me, const at::Tensor& mine,
                                                   std::span<const Slice> slices) = 0;
  /// An all-gather: everybody's vector has each slice as its owner has it. Returns the seconds of this worker's
  /// own copies. An owner sends its slices to every other member.
  virtual Seconds spread(std::size_t group, WorkerId me, const at::Tensor& mine,
                         std::span<const Slice> slices) = 0;

  /// Calls `use` with what every member brings, in their order; complete, read-only, and only there.
  virtual void gather(std::size_t group, WorkerId me, std::vector<at::Tensor> mine,
                      const std::function<void(const Parts&)>& use) = 0;
};

/// Workers of one process: each adds a slice of the vectors for all of them.
std::unique_ptr<Collectives> make_in_process_collectives(Coordinator& coordinator, std::vector<Group> groups);

}  // namespace pp::run
