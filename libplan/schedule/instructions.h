// What a worker does for the operations of its program, one instruction after another. The simulator prices
// these lists, the runtime runs them; features are passes over them.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "libplan/schedule/program.h"
#include "libprofile/core/enum_names.h"
#include "libprofile/core/index.h"

namespace pp::plan {

enum class InstructionKind {
  // messages and data
  receive,
  feed,  ///< the rows of the data that the stage reads
  send,
  // compute
  forward,
  recompute,
  backward,
  input_gradient,
  weight_gradient,
  // a step's end
  begin_reduce,  ///< sums over the replicas, as the layers of the backward behind it are through
  reduce,        ///< gradients and statistics over the stage's replicas
  tie,           ///< gradients of weights that several stages have
  judge,  ///< with all workers: whether the step's updates are made, and how far its gradients are scaled
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

/// Which way a message goes; evaluation: activations of a forward that no backward follows.
enum class Direction { activation, gradient, evaluation };

}  // namespace pp::plan

namespace pp {
template <>
struct EnumNames<plan::InstructionKind> {
  using enum plan::InstructionKind;
  static constexpr std::array table{std::pair{receive, "receive"sv},
                                    std::pair{feed, "feed"sv},
                                    std::pair{send, "send"sv},
                                    std::pair{forward, "forward"sv},
                                    std::pair{recompute, "recompute"sv},
                                    std::pair{backward, "backward"sv},
                                    std::pair{input_gradient, "input_gradient"sv},
                                    std::pair{weight_gradient, "weight_gradient"sv},
                                    std::pair{begin_reduce, "begin_reduce"sv},
                                    std::pair{reduce, "reduce"sv},
                                    std::pair{tie, "tie"sv},
                                    std::pair{judge, "judge"sv},
                                    std::pair{update, "update"sv},
                                    std::pair{spread, "spread"sv},
                                    std::pair{fetch, "fetch"sv},
                                    std::pair{push, "push"sv},
                                    std::pair{ready, "ready"sv},
                                    std::pair{load, "load"sv},
                                    std::pair{evict, "evict"sv},
                                    std::pair{write_back, "write_back"sv},
                                    std::pair{stash, "stash"sv},
                                    std::pair{unstash, "unstash"sv},
                                    std::pair{evaluate, "evaluate"sv},
                                    std::pair{score, "score"sv},
                                    std::pair{hand_out, "hand_out"sv}};
};
}  // namespace pp

namespace pp::plan {

/// One end of an edge, over which something goes from the stage that makes it to one that reads it.
struct Port {
  int edge = 0;            ///< as the caller counts them
  std::size_t tensor = 0;  ///< position among the inputs or outputs of this stage; 0 where nobody asks
  StageId peer{};          ///< the stage at the other end
};

/// What the operations of a stage receive and send, in this order.
struct StagePorts {
  std::vector<Port> inputs, outputs;   ///< of a forward
  std::vector<Port> output_gradients;  ///< received by a backward: per output in descending consumer order
  std::vector<Port> input_gradients;   ///< sent by a backward
};

struct Instruction {
  InstructionKind kind{};
  Direction direction = Direction::activation;  ///< of messages
  std::span<const Port> ports = {};             ///< of messages, in Lowering::ports
  int lag = 0;          ///< of receive: the message is that of so many micro-batches before the operation's
  bool trains = false;  ///< of load and evict: the stage is updated between them
  bool waits = false;   ///< of load: the next operation needs the stage
};

/// What the lists depend on besides a program. Lists per stage may be empty: no stage has it.
struct Lowering {
  std::span<const StagePorts> ports = {};  ///< per stage; must outlive the instructions. Empty: no messages
  std::vector<bool> reads_data = {};
  std::vector<bool> shares_state = {};  ///< its replicas divide the optimizer's state
  std::vector<bool> hides_sums = {};    ///< its replicas' sums begin beside the last backward
  std::optional<StageId> scores = {};   ///< stage that ends with the loss
  Direction forwards = Direction::activation;
  int activation_lag = 0, gradient_lag = 0;
  bool inference = false;  ///< outputs are handed out
  bool swapped = false;    ///< weights live on the host
  bool served = false;     ///< replicas train around a parameter server
  bool judged = false;     ///< clipping, loss scales, --on-nan
};

/// Appends an operation's own instructions: all but what depends on its place in a program. Those of a kind of
/// operation of a stage are the same at every micro-batch.
void add_instructions(std::vector<Instruction>& list, const Op& op, const Lowering& lowering);

/// By operation, as StreamWalk::place() counts them.
using InstructionLists = std::vector<std::vector<Instruction>>;
/// O(operations).
InstructionLists lower(const Stream& stream, const Lowering& lowering);

/// Whose time an operation takes on its worker.
struct OpParts {
  InstructionKind waits{};   ///< from the end of the operation before to its begin
  InstructionKind works{};   ///< while the worker is busy
  InstructionKind behind{};  ///< from then to its end
};
OpParts parts_of(std::span<const Instruction> list);

/// Place of the last backward of its stage in front of an all-reduce, which hides a part of it; kNowhere: there
/// is none since the stage's last update.
std::size_t hiding_backward(std::span<const Op> program, std::size_t all_reduce);
inline constexpr std::size_t kNowhere = std::size_t(-1);

/// By operation of a worker's list: of L and E, whether the stage is updated between them.
std::vector<bool> trained_stays(std::span<const Op> program);

/// A line an operation: `F1.0: receive activation 0 from stage 0, feed, forward, send activation 1 to stage 2`.
std::string listing(const Stream& stream, const InstructionLists& lists);

}  // namespace pp::plan
