// What a stage holds on one device, from what its layers hold: the one formula of the searches and of the
// prices that the simulator is given.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include <string_view>
#include <tuple>

#include "libplan/cost/whole_bytes.h"
#include "libprofile/core/cluster.h"

namespace pp::plan {

/// What entries of one piece of hardware have in common: kind, node and index.
using Hardware = std::tuple<DeviceKind, std::string_view, int>;
Hardware hardware_of(const Device& device);
/// Whether both are one piece of hardware, whose memory they share.
bool share_memory(const Device& a, const Device& b);

/// How a tensor reaches another worker. By reference, among CPU devices of one node and among workers on one
/// CUDA device: each side holds it while it works with it, neither in between. By copy: a buffer at either
/// end for each message of a micro-batch.
enum class HandOver { copy, reference };
HandOver hand_over(const Device& a, const Device& b);
/// Among all these positions of the cluster: by reference where every two of them do.
HandOver hand_over(const Cluster& cluster, std::span<const int> positions);
/// Of the messages of one stage, beyond the inputs that it keeps. `in` and `out` in bytes per micro-batch.
std::int64_t message_bytes(HandOver hand_over, std::int64_t in, std::int64_t out);

/// What the layers of a stage hold and exchange, added up. Tensors in bytes of one micro-batch.
struct StageContents {
  std::int64_t parameters = 0, buffers = 0;
  std::int64_t frozen = 0;     ///< the part of `parameters` that is not trained
  std::int64_t gradients = 0;  ///< one for each use of a trained parameter
  std::int64_t saved = 0;      ///< from F to B
  std::int64_t entering = 0;   ///< the part of `saved` that is a tensor of another stage
  std::int64_t received = 0;   ///< from other stages, each tensor once
  std::int64_t kept = 0;       ///< the part of it that a forward may leave behind (kept_inputs.h)
  std::int64_t sent = 0;       ///< to other stages, each tensor once
  std::int64_t messages = 0;   ///< message_bytes()
  std::int64_t transient = 0;  ///< peak of a micro-batch above `saved`
};

struct StageKeeping {
  int versions = 1;                            ///< of the weights
  int in_flight = 1;                           ///< micro-batches
  int smaller = 0;                             ///< of them
  double scale = 1;                            ///< bytes of a smaller one, relative to the others
  double state_ratio = 1, gradient_ratio = 1;  ///< OptimizerCost
  int sharers = 1;                             ///< devices that divide the optimizer's state
  bool runs_again = false;                     ///< some layers, from all that the stage received
};

/// Bytes of one stage by part, as they are added up.
struct StageBytes {
  std::int64_t weights = 0, gradients = 0, optimizer = 0, versions = 0;
  std::int64_t saved = 0;      ///< one micro-batch, without what `input` holds
  std::int64_t input = 0;      ///< one micro-batch
  std::int64_t boundary = 0;   ///< message_bytes()
  std::int64_t again = 0;      ///< what runs again has in backward, of one micro-batch at a time
  std::int64_t workspace = 0;  ///< above all that is saved
  int in_flight = 1;
  int smaller = 0;   ///< StageKeeping::smaller
  double scale = 1;  ///< StageKeeping::scale
  std::int64_t total() const {
    return weights + gradients + optimizer + versions + held(saved) + held(input) + again + boundary +
           workspace;
  }
  /// `bytes` of every micro-batch in flight.
  std::int64_t held(std::int64_t bytes) const {
    const double all = static_cast<double>(in_flight) * static_cast<double>(bytes);
    if (all > 1e16) return whole_bytes(all);  // where integers might wrap
    if (smaller == 0) return in_flight * bytes;
    return (in_flight - smaller) * bytes + smaller * std::llround(scale * static_cast<double>(bytes));
  }
};

StageBytes stage_bytes(const StageContents& contents, const StageKeeping& keeping);

}  // namespace pp::plan
