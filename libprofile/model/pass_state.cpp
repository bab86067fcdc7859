#include "libprofile/model/pass_state.h"

#include <utility>

namespace pp::model::detail {

std::unique_ptr<PassState> PassStates::take() {
  {
    const std::lock_guard held(mutex_);
    if (!free_.empty()) {
      std::unique_ptr<PassState> state = std::move(free_.back());
      free_.pop_back();
      return state;
    }
  }
  auto state = std::make_unique<PassState>();
  state->graphs.resize(layers_);
  state->tensors.resize(tensors_);
  state->sums.resize(tensors_);
  return state;
}

void PassStates::give(std::unique_ptr<PassState> state) {
  state->weights.reset();
  for (LayerGraph& graph : state->graphs) graph = LayerGraph();
  const std::lock_guard held(mutex_);
  free_.push_back(std::move(state));
}

void PassStates::give(std::vector<BatchStatistics> statistics) {
  statistics.clear();
  const std::lock_guard held(mutex_);
  if (!free_.empty()) free_.back()->statistics = std::move(statistics);
}

}  // namespace pp::model::detail
