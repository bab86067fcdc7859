// What a worker does for the operations of its program, one instruction after another: known before the first
// step, because plan and options fix it. Features are passes over these lists.
// Free of Torch.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "libplan/plan/plan.h"
#include "librun/transport/channel.h"
#include "librun/wiring/channels.h"
#include "librun/wiring/wiring.h"

namespace pp::run {

enum class InstructionKind {
  // messages and data
  receive,
  feed,  ///< the rows of the data that the stage reads
  send,
  // compute
  forward,
  recompute,
  backward,  ///< B or I
  weight_gradient,
  // a step's end
  reduce,  ///< gradients and statistics over the stage's replicas
  tie,     ///< gradients of weights that several stages have
  judge,   ///< with all workers: whether the step's updates are made, and how far its gradients are scaled
  update,
  spread,  ///< each replica's part of the updated weights to the others
  // around a parameter server
  fetch,
  push,
  // weights on the host
  ready,  ///< the stage is there, and what tasks before left for later ones is not
  load,
  evict,
  write_back,
  stash,
  unstash,
  // forward alone
  evaluate,
  score,
  hand_out
};

/// `receive`, `write back`.
std::string_view name_of(InstructionKind kind);

struct Instruction {
  InstructionKind kind{};
  plan::Op op;                                  ///< that it is a part of, as the stream writes it
  Direction direction = Direction::activation;  ///< of messages
  std::vector<Port> ports = {};                 ///< of messages
  bool trains = false;                          ///< of load: an update follows before the stage leaves
  bool waits = false;                           ///< of load: the next operation needs the stage
};

/// By operation, as plan::StreamWalk::place() counts them.
using InstructionLists = std::vector<std::vector<Instruction>>;

/// What the lists depend on besides a stream.
struct LoweringInput {
  const plan::Plan& plan;
  const Channels& channels;
  std::span<const StageWiring> wiring;
  Direction forwards = Direction::activation;  ///< evaluation: no backward follows
  bool loss = false;                           ///< the last stage ends with it
  bool inference = false;                      ///< outputs are handed out
  bool swapped = false;                        ///< weights live on the host
  bool served = false;                         ///< replicas train around a parameter server
  bool judged = false;                         ///< clipping, loss scales, --on-nan
};

/// Whether the stage's replicas divide the optimizer's state.
bool shares_state(const plan::Plan& plan, StageId stage);

InstructionLists lower(const plan::Stream& stream, const LoweringInput& from);

/// A line an operation: `F1.0: receive activation 0 from stage 0, feed, forward, send activation 1 to stage 2`.
std::string listing(const plan::Stream& stream, const InstructionLists& lists);

}  // namespace pp::run
