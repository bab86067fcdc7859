// What workers send each other and add up together, one after the other, while nobody computes: each message
// with a content of its own, which its receiver compares, and timed once the way is warm.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "librun/report/warm_report.h"
#include "librun/transport/channel.h"
#include "librun/transport/collectives.h"
#include "librun/transport/transport.h"

namespace pp::run {

/// A message of one channel, or what the members of one group do together.
struct Exercise {
  enum class Kind {
    message,
    sum,     ///< of vectors
    shares,  ///< a reduce of `slices`, then weights from their owners to the others
    gather   ///< of one tensor from each
  };
  Kind kind = Kind::message;
  std::size_t number = 0;                ///< of the channel, or of the group
  std::vector<std::int64_t> sizes = {};  ///< of the tensor, or of each member's vector
  at::ScalarType type = at::kFloat;      ///< of that
  std::vector<Slice> slices = {};
  at::ScalarType weights = at::kFloat;  ///< type of what owners hand out
  WarmExchange exchange = {};           ///< but for what is measured
};

/// What exercises go through. All must outlive them.
struct Ways {
  Coordinator& coordinator;
  Transport& transport;
  Collectives& collectives;
  std::span<const Channel> channels;
  std::size_t everybody = 0;  ///< the group of all workers
  /// One time for all processes, of what the clock here shows.
  std::function<Coordinator::Clock::time_point(Coordinator::Clock::time_point)> common;
};

/// Exchanges of each kind that are timed, behind some that are not.
inline constexpr int kTimedExchanges = 5;

/// One worker's part of all of them, on its thread, which has entered `device`; all workers call it with the
/// same list. Returns nanoseconds [exercises, kTimedExchanges], 0 where the worker has no part: of a message
/// when it left and when it was there, of a group how long this member took. Throws pp::Error (run) for a
/// content that is not what was sent, and as Monitor::wait does.
at::Tensor exercise(const Ways& ways, WorkerId me, const at::Device& device, std::span<const Exercise> all);

/// Returns when all workers have called it.
void meet(const Ways& ways, WorkerId me);

/// Sets what was measured, from what each worker returned.
void set_measured(std::span<Exercise> all, std::span<const Channel> channels,
                  const std::vector<at::Tensor>& by_worker);

}  // namespace pp::run
