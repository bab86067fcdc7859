#include "libplan/cost/graph.h"

#include <algorithm>
#include <map>

#include "libprofile/core/error.h"
#include "libprofile/core/index.h"
#include "libprofile/core/ops/op_table.h"

namespace pp::plan {

namespace {

void check_layers(const Profile& profile) {
  const auto& layers = profile.model.layers;
  if (layers.empty()) throw Error(ErrorKind::data, "the profile's model has no layers: nothing to plan");
  if (profile.layers.size() != layers.size()) {
    throw Error(ErrorKind::data, "the profile has " + std::to_string(profile.layers.size()) +
                                     " layers, its model " + std::to_string(layers.size()) +
                                     "; profile the model again");
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].name == profile.layers[i].name) continue;
    throw Error(ErrorKind::data, "layer " + std::to_string(i) + " is \"" + profile.layers[i].name +
                                     "\" in the profile and \"" + layers[i].name +
                                     "\" in its model; profile the model again");
  }
}

void connect(PlanGraph& graph, int producer, int consumer) {
  auto& producers = graph.layers[at(consumer)].producers;
  if (std::find(producers.begin(), producers.end(), producer) != producers.end()) return;
  producers.push_back(producer);
  graph.layers[at(producer)].consumers.push_back(consumer);
}

/// A layer of another planner's graph, of which only sizes are known: trained, and its output has a gradient.
bool opaque(const ResolvedModel& model, std::size_t layer) { return model.graph.layers[layer].op == kOpaqueOp; }

void mark_gradients(PlanGraph& graph, const ResolvedModel& model) {
  const auto mark = [&](const ResolvedLayer& reader) {
    for (std::size_t k = 0; k < reader.sources.size(); ++k) {
      if (reader.input_gradient[k]) graph.layers[at(reader.sources[k].index)].has_gradient = true;
    }
  };
  for (std::size_t i = 0; i < graph.layers.size(); ++i) graph.layers[i].has_gradient = opaque(model, i);
  for (const ResolvedLayer& layer : model.layers) mark(layer);
  mark(model.loss);
}

void group_shared(PlanGraph& graph, const ResolvedModel& model) {
  std::map<int, std::vector<int>> users;
  for (int i = 0; i < graph.size(); ++i) {
    const int owner = model.layers[at(i)].weights_layer;
    if (owner >= 0) users[owner].push_back(i);
  }
  for (auto& [owner, layers] : users) {
    for (const int user : layers) {
      if (user == owner) continue;
      graph.layers[at(user)].borrowed_bytes = graph.layers[at(owner)].trained_bytes();
    }
    if (layers.size() > 1) graph.shared.push_back(std::move(layers));
  }
  graph.tied = graph.shared;
}

}  // namespace

PlanGraph make_graph(const Profile& profile) {
  check_layers(profile);
  const ResolvedModel model = resolve(profile.model);
  PlanGraph graph;
  for (const LayerProfile& layer : profile.layers) {
    graph.layers.push_back({.name = layer.name,
                            .producers = {},
                            .consumers = {},
                            .parameter_bytes = layer.parameters.value,
                            .frozen_bytes = (layer.parameters - trained_bytes(layer)).value,
                            .buffer_bytes = layer.buffers.value,
                            .expert_bytes = layer.experts.value});
  }
  for (int i = 0; i < graph.size(); ++i) {
    for (const TensorSource& source : model.layers[at(i)].sources) {
      if (source.kind == TensorSource::Kind::layer) connect(graph, source.index, i);
    }
  }
  for (GraphLayer& layer : graph.layers) std::sort(layer.producers.begin(), layer.producers.end());
  for (const TensorSource& source : model.loss_sources) {
    if (source.kind == TensorSource::Kind::layer) graph.layers[at(source.index)].feeds_loss = true;
  }
  mark_gradients(graph, model);
  group_shared(graph, model);
  return graph;
}

std::vector<bool> may_be_kept(const PlanGraph& graph, std::span<const LayerPrice> prices) {
  std::vector<bool> by_producer(at(graph.size())), kept(at(graph.size()));
  for (int l = 0; l < graph.size(); ++l) {  // in topological order
    const GraphLayer& layer = graph.layers[at(l)];
    const LayerPrice& price = prices[at(l)];
    by_producer[at(l)] = !price.waiting || price.saved - price.saved_input >= price.output;
    if (price.saved == 0 && !by_producer[at(l)]) {
      by_producer[at(l)] = std::ranges::any_of(layer.producers, [&](int producer) {
        return by_producer[at(producer)] && prices[at(producer)].output == price.output;
      });
    }
    kept[at(l)] =
        by_producer[at(l)] || layer.feeds_loss || std::ranges::any_of(layer.consumers, [&](int reader) {
          return !prices[at(reader)].waiting || prices[at(reader)].saved_input >= price.output;
        });
  }
  return kept;
}

}  // namespace pp::plan
