// The ways that boundary tensors take from worker to worker, as they are known before anything is sent. Free of
// Torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "libplan/schedule/instructions.h"
#include "libprofile/core/index.h"
#include "libprofile/core/model/model_graph.h"

namespace pp::run {

using plan::Direction;

/// Carries one tensor of the model from one worker to one other, a message for each micro-batch that the two
/// have in common. Channels are numbered from 0; channel and number name a message, and nothing else about it
/// need be sent: it is [rows, shape...], dense and in `format`, with the rows of its micro-batch.
struct Channel {
  WorkerId from{};
  WorkerId to{};
  Direction direction = Direction::activation;
  int layer = 0;  ///< model-wide, that makes the tensor
  int output = 0;
  StageId consumer{};               ///< that reads the tensor (and sends its gradient back)
  Shape shape = {};                 ///< of a sample
  std::optional<DType> dtype = {};  ///< none: floating, by autocast's rules
  MemoryFormat format = MemoryFormat::contiguous;
  /// A message's number is its micro-batch plus this times its step (evaluation: its epoch).
  std::int64_t per_step = 1;
  int window = 1;        ///< messages that may wait unread
  bool in_order = true;  ///< they are received in the order in which they are sent
  /// Channels of one kind (training, evaluation) from one worker to another: those of one lane are sent and
  /// received in one order, all together. Numbered from 0 for each two workers.
  int lane = 0;
};

/// `the gradient of layer 3 for micro-batch 1 of step 1 from worker 2`
std::string describe(const Channel& channel, std::int64_t number);

}  // namespace pp::run
