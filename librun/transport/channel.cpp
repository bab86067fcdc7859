#include "librun/transport/channel.h"

namespace pp::run {

std::string describe(const Channel& channel, std::int64_t number) {
  const bool gradient = channel.direction == Direction::gradient;
  const bool trains = channel.direction != Direction::evaluation;
  const auto text = [](auto value) { return std::to_string(value); };
  return (gradient ? "the gradient of layer " : "the output of layer ") + text(channel.layer) +
         " for micro-batch " + text(number % channel.per_step) + (trains ? " of step " : " of evaluation ") +
         text(number / channel.per_step + 1) + " from worker " + text(pp::number(channel.from));
}

}  // namespace pp::run
