#include "libplan/cost/chain.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "libplan/cost/graph.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

/// A tensor of the chain by positions; `readers` ascend and are all behind `producer`.
struct Tensor {
  int producer;
  std::vector<int> readers;
  std::int64_t bytes;
  bool gradient;
  bool kept;  ///< maybe, where it is read
};

std::vector<Tensor> tensors_of(const PlanGraph& graph, const std::vector<int>& order,
                               const std::vector<int>& position, std::span<const LayerPrice> prices) {
  const int last = static_cast<int>(order.size()) - 1;
  const std::vector<bool> kept = may_be_kept(graph, prices);
  std::vector<Tensor> tensors;
  for (int p = 0; p <= last; ++p) {
    const GraphLayer& layer = graph.layers[at(order[at(p)])];
    Tensor tensor{p, {}, prices[at(order[at(p)])].output, layer.has_gradient, kept[at(order[at(p)])]};
    for (const int consumer : layer.consumers) tensor.readers.push_back(position[at(consumer)]);
    if (layer.feeds_loss && p != last) tensor.readers.push_back(last);
    std::sort(tensor.readers.begin(), tensor.readers.end());
    tensor.readers.erase(std::unique(tensor.readers.begin(), tensor.readers.end()), tensor.readers.end());
    if (!tensor.readers.empty()) tensors.push_back(std::move(tensor));
  }
  return tensors;
}

void add_tensor(Chain& chain, const Tensor& tensor) {
  auto reader = tensor.readers.begin();
  const auto bytes = static_cast<double>(tensor.bytes);
  for (int boundary = tensor.producer + 1; boundary <= tensor.readers.back(); ++boundary) {
    while (*reader < boundary) ++reader;
    chain.incoming.add(boundary, *reader - boundary, tensor.bytes);
    if (tensor.kept) chain.keeping.add(boundary, *reader - boundary, tensor.bytes);
    chain.outgoing.add(boundary, boundary - 1 - tensor.producer, tensor.bytes);
    chain.cut_activation[at(boundary)] += bytes;
    chain.cut_activations[at(boundary)] += 1;
    if (!tensor.gradient) continue;
    chain.cut_gradient[at(boundary)] += bytes;
    chain.cut_gradients[at(boundary)] += 1;
  }
  const auto add = [&](Exchange& least) {
    least.activation += bytes;
    least.activations += 1;
    if (!tensor.gradient) return;
    least.gradient += bytes;
    least.gradients += 1;
  };
  add(chain.least_out[at(tensor.producer + 1)]);
  for (const int position : tensor.readers) add(chain.least_in[at(position)]);
}

/// What layer `position` keeps of its inputs is held by the stage's input once the producer is in front of the
/// boundary.
void add_entering(Chain& chain, int position, std::int64_t saved_input, const GraphLayer& layer,
                  const std::vector<int>& positions, std::span<const LayerPrice> prices) {
  int first = position;
  for (const int producer : layer.producers) first = std::min(first, positions[at(producer)]);
  for (int boundary = first + 1; boundary <= position; ++boundary) {
    std::int64_t in_front = 0;
    for (const int producer : layer.producers) {
      if (positions[at(producer)] < boundary) in_front += prices[at(producer)].output;
    }
    chain.entering.add(boundary, position - boundary, std::min(saved_input, in_front));
  }
}

/// The largest of every power of two of neighbours: [level][first].
std::vector<std::vector<std::int64_t>> maxima(std::vector<std::int64_t> row) {
  const std::size_t size = row.size();
  std::vector<std::vector<std::int64_t>> table{std::move(row)};
  for (std::size_t width = 2; width <= size; width *= 2) {
    const auto& half = table.back();
    std::vector<std::int64_t> next(size - width + 1);
    for (std::size_t i = 0; i < next.size(); ++i) next[i] = std::max(half[i], half[i + width / 2]);
    table.push_back(std::move(next));
  }
  return table;
}

std::int64_t largest(const std::vector<std::vector<std::int64_t>>& table, int begin, int end) {
  const auto length = at(end - begin);
  const auto& row = table[std::bit_width(length) - 1];
  return std::max(row[at(begin)], row[at(end) - std::bit_floor(length)]);
}

/// For a chain that has another order than the model.
void add_model_order(Chain& chain, std::span<const int> position) {
  const int layers = chain.size();
  std::vector<std::int64_t> reach;
  std::int64_t saved = 0;
  for (const int p : position) {
    saved += chain.layers[at(p)].saved;
    reach.push_back(saved + chain.workspaces[at(p)]);
  }
  reach.back() = std::max(reach.back(), saved + chain.loss.saved + chain.workspaces.back());
  chain.model_reach = maxima(std::move(reach));
  chain.settled_before.push_back(0);
  for (int boundary = 1, last = -1; boundary <= layers; ++boundary) {
    last = std::max(last, chain.order[at(boundary - 1)]);
    chain.settled_before.push_back(last < boundary ? boundary : chain.settled_before.back());
  }
  chain.settled_behind.assign(at(layers + 1), layers);
  for (int boundary = layers; boundary-- > 0;) {
    const bool settled = chain.settled_before[at(boundary)] == boundary;
    chain.settled_behind[at(boundary)] = settled ? boundary : chain.settled_behind[at(boundary + 1)];
  }
}

}  // namespace

Exchange least_of(const Exchange& a, const Exchange& b) {
  return {std::min(a.activation, b.activation), std::min(a.gradient, b.gradient),
          std::min(a.activations, b.activations), std::min(a.gradients, b.gradients)};
}

void CrossingTable::add(int boundary, int distance, std::int64_t bytes) {
  if (bytes != 0) rows_[at(boundary)].push_back({distance, bytes});
}

void CrossingTable::finish() {
  for (std::vector<Item>& row : rows_) {
    std::stable_sort(row.begin(), row.end(),
                     [](const Item& a, const Item& b) { return a.distance < b.distance; });
    std::int64_t sum = 0;
    for (Item& item : row) item.bytes = sum += item.bytes;
  }
}

std::int64_t CrossingTable::sum(int boundary, int reach) const {
  const std::vector<Item>& row = rows_[at(boundary)];
  const auto end =
      std::partition_point(row.begin(), row.end(), [&](const Item& i) { return i.distance < reach; });
  return end == row.begin() ? 0 : std::prev(end)->bytes;
}

std::int64_t Chain::transient(int begin, int end) const {
  std::int64_t most = 0;
  if (model_reach.empty() || ascends(begin, end)) {
    most = largest(reach, begin, end);
  } else if (const int first = settled_behind[at(begin)], last = settled_before[at(end)]; first > last) {
    most = most_held(begin, end);
  } else {
    most = std::max(most_held(begin, first), most_held(last, end));
    if (first < last) most = std::max(most, largest(model_reach, first, last));
  }
  return std::max<std::int64_t>(0, most - upto[at(end)].saved);
}

std::int64_t Chain::most_held(int begin, int end) const {
  if (begin == end) return 0;
  if (ascends(begin, end)) return largest(reach, begin, end);
  std::vector<std::pair<int, int>> run;  // layer and position
  for (int p = begin; p < end; ++p) run.emplace_back(order[at(p)], p);
  std::ranges::sort(run);
  std::int64_t saved = upto[at(begin)].saved, most = 0;
  for (const auto& [layer, p] : run) {
    saved += layers[at(p)].saved;
    most = std::max(most, saved + workspaces[at(p)]);
  }
  return end == size() ? std::max(most, saved + loss.saved + workspaces.back()) : most;
}

LayerSums Chain::total(int begin, int end) const {
  LayerSums sum;
  for (int p = begin; p < end; ++p) sum += layers[at(p)];
  if (end == size()) sum += loss;
  return sum;
}

PassTimes Chain::total_passes(int begin, int end, const Crowding& share) const {
  PassTimes sum;
  for (int p = begin; p < end; ++p) sum += layers[at(p)].passes(share);
  if (end == size()) sum += loss.passes(share);
  return sum;
}

Chain empty_chain(int boundaries) {
  Chain chain;
  chain.upto.resize(at(boundaries));
  for (auto* bytes : {&chain.cut_activation, &chain.cut_gradient}) bytes->assign(at(boundaries), 0);
  for (auto* least : {&chain.least_in, &chain.least_out}) least->assign(at(boundaries), {});
  for (auto* counts : {&chain.cut_activations, &chain.cut_gradients}) counts->assign(at(boundaries), 0);
  chain.incoming = chain.outgoing = chain.entering = chain.keeping = CrossingTable(boundaries);
  return chain;
}

Chain make_chain(const PlanGraph& graph, std::vector<int> order, std::span<const LayerPrice> prices,
                 const LayerPrice& loss, const OptimizerCost& optimizer) {
  Chain chain = empty_chain(static_cast<int>(order.size()) + 1);
  chain.order = std::move(order);
  chain.optimizer = optimizer;
  chain.loss = sums_of_loss(loss);
  const int layers = chain.size();
  std::vector<int> position(at(layers));
  for (int p = 0; p < layers; ++p) position[at(chain.order[at(p)])] = p;
  std::vector<std::int64_t> reach;
  for (int p = 0; p < layers; ++p) {
    const GraphLayer& layer = graph.layers[at(chain.order[at(p)])];
    const LayerPrice& price = prices[at(chain.order[at(p)])];
    add_entering(chain, p, price.saved_input, layer, position, prices);
    const std::int64_t saved = chain.upto[at(p)].saved;
    reach.push_back(saved + price.saved + price.workspace);
    chain.workspaces.push_back(price.workspace);
    const bool descends = p > 0 && chain.order[at(p)] < chain.order[at(p) - 1];
    chain.descents.push_back(p == 0 ? 0 : chain.descents.back() + (descends ? 1 : 0));
    const LayerSums& sums = chain.layers.emplace_back(sums_of(layer, price));
    LayerSums& upto = chain.upto[at(p + 1)] = chain.upto[at(p)];
    upto += sums;
    if (p < layers - 1) continue;
    upto += chain.loss;
    reach.back() = std::max(reach.back(), upto.saved + loss.workspace);
    chain.workspaces.push_back(loss.workspace);
  }
  for (const Tensor& tensor : tensors_of(graph, chain.order, position, prices)) add_tensor(chain, tensor);
  for (CrossingTable* table : {&chain.incoming, &chain.outgoing, &chain.entering, &chain.keeping})
    table->finish();
  chain.reach = maxima(std::move(reach));
  if (layers > 0 && chain.descents.back() > 0) add_model_order(chain, position);
  return chain;
}

}  // namespace pp::plan
