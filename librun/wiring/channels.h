// The channels of a run, derived from the tensor edges between stages and the workers' programs: what each
// operation receives and sends, and over which channel.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "libplan/plan/plan.h"
#include "libplan/schedule/instructions.h"
#include "libprofile/core/model/model_graph.h"
#include "librun/transport/channel.h"
#include "librun/wiring/wiring.h"

namespace pp::run {

using plan::Port;
using plan::StagePorts;

struct ChannelOptions {
  bool autocast = false;
  std::int64_t step_micro_batches = 1;        ///< at most
  std::int64_t evaluation_micro_batches = 1;  ///< at most
  /// A backward takes the gradient that the next stage has for the micro-batch so many before its own (PARTIME:
  /// 2).
  int gradient_lag = 0;
  /// Backwards may be on other workers than forwards, and all micro-batches of a step may wait between them.
  bool swapped = false;
};

class Channels {
 public:
  /// `training` and `evaluation`: the workers' streams. Follows both as far as they do anything new, with the
  /// micro-batches that wait at most: pp::Error (data) for a message that is received and never sent, or sent
  /// and never received. Windows are one more than twice what is in flight in a valid plan, so that only a
  /// sender without any dependence on its receiver ever waits.
  Channels(const plan::Plan& plan, const ResolvedModel& model, std::span<const StageWiring> wiring,
           std::span<const plan::Stream> training, std::span<const plan::Stream> evaluation,
           const ChannelOptions& options = {});

  const std::vector<Channel>& list() const { return channels_; }
  const StagePorts& ports(StageId stage) const { return ports_[index(stage)]; }
  /// Per stage; edges are tensors that go from the stage that makes them to one that reads them.
  const std::vector<StagePorts>& all_ports() const { return ports_; }
  /// Number of the channel for messages of this edge.
  int find(Direction direction, int edge, WorkerId from, WorkerId to) const;

 private:
  struct Edge {
    StageId producer{};
    StageId consumer{};
    TensorSource source;
    bool gradient = false;
    std::array<std::vector<int>, 3> channels;  ///< by direction
  };

  void connect(std::span<const StageWiring> wiring);
  /// Between the owners of the edge's forwards, or of its backwards.
  void add(Direction direction, int edge, const Owners& owners, const Channel& pattern);
  void follow(std::span<const plan::Stream> streams, Direction forwards, const Owners& owners,
              const Owners& backward_owners, int gradient_lag);
  /// What goes from one worker to another, as each of the two lists it: channel and micro-batch.
  struct BothEnds {
    std::vector<std::pair<int, std::int64_t>> sent, received;
  };
  void find_lanes(const BothEnds& ends);

  std::vector<StagePorts> ports_;  ///< per stage
  std::vector<Edge> edges_;
  std::vector<Channel> channels_;
};

}  // namespace pp::run
