// What several workers do together: sums over replicas, and what copies of shared weights bring together.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "libprofile/core/units.h"
#include "librun/transport/coordinator.h"

namespace pp::run {

/// Workers that meet, in the order in which they count.
using Group = std::vector<WorkerId>;

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

  /// Calls `use` with what every member brings, in their order; complete, read-only, and only there.
  virtual void gather(std::size_t group, WorkerId me, std::vector<at::Tensor> mine,
                      const std::function<void(const Parts&)>& use) = 0;
};

/// Workers of one process: each adds a slice of the vectors for all of them.
std::unique_ptr<Collectives> make_in_process_collectives(Coordinator& coordinator, std::vector<Group> groups);

}  // namespace pp::run
