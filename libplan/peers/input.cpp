#include "libplan/peers/input.h"

#include <limits>

#include "libplan/cost/priced_model.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

/// The loss is computed where the last layer is.
void add_loss(LayerPrice& last, const LayerPrice& loss) {
  last.forward += loss.forward;
  last.backward += loss.backward;
  last.saved += loss.saved;
}

}  // namespace

double PeerInput::compute(int layer) const { return prices[at(layer)].forward + prices[at(layer)].backward; }

double PeerInput::total_compute() const {
  double sum = 0;
  for (int layer = 0; layer < size(); ++layer) sum += compute(layer);
  return sum;
}

double PeerInput::memory_limit(const PeerOptions& options) const {
  if (options.memory_limit) return static_cast<double>(options.memory_limit->value);
  const std::int64_t device = profile.device.memory.value;
  return device > 0 ? static_cast<double>(device) : std::numeric_limits<double>::infinity();
}

PeerInput peer_input(const Profile& profile) {
  PeerInput input{profile, make_graph(profile), {}, {}};
  const int size = static_cast<int>(profile.micro_batch_sizes.front());
  const PricedModel model = price_model(profile, std::vector<int>{size}, {});
  input.prices = model.layers;
  add_loss(input.prices.back(), model.loss);
  std::vector<std::int64_t> outputs;
  for (const LayerPrice& price : input.prices) outputs.push_back(price.output);
  input.orders = linear_orders(input.graph, outputs);
  return input;
}

Chain chain_of(const PeerInput& input, const LinearOrder& order) {
  return make_chain(input.graph, order.layers, input.prices, {}, {});
}

PeerPlan empty_plan(const PeerInput& input, const PeerOptions& options) {
  PeerPlan plan;
  plan.profile = input.profile.model.name;
  plan.options = options;
  return plan;
}

std::vector<std::string> names_of(const PeerInput& input, const std::vector<int>& layers) {
  std::vector<std::string> names;
  for (const int layer : layers) names.push_back(input.graph.layers[at(layer)].name);
  return names;
}

}  // namespace pp::plan
