#include "librun/transport/mailbox.h"

namespace pp::run {

std::string describe(const Tag& tag, WorkerId from) {
  const std::string kind =
      tag.direction == Direction::gradient ? "the gradient of layer " : "the output of layer ";
  return kind + std::to_string(tag.layer) + " for micro-batch " + std::to_string(tag.micro_batch) +
         " of step " + std::to_string(tag.step + 1) + " from worker " + std::to_string(number(from));
}

}  // namespace pp::run
