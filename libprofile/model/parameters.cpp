#include "libprofile/model/parameters.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/model/ops.h"
#include "libprofile/model/ops/forward.h"

namespace pp::model {
namespace ops {
namespace {

double fan_in(const ParameterSpec& weight) {
  return static_cast<double>(element_count(weight.shape)) / static_cast<double>(weight.shape.front());
}

void uniform(at::Tensor& tensor, double bound, const at::Generator& generator) {
  tensor.uniform_(-bound, bound, generator);
}

/// The attribute of this name; 0 where the op has none.
template <class T>
T given(const Start& start, std::string_view name) {
  const auto found = start.attributes.find(name);
  return found == start.attributes.end() ? T{} : std::get<T>(found->second);
}

}  // namespace

void initialise_by_fan_in(at::Tensor& tensor, const Start& start) {
  const double std = given<double>(start, "std");
  if (std > 0 && start.index > 0) {
    tensor.zero_();
  } else if (std > 0) {
    tensor.normal_(0.0, std, start.generator);
  } else {
    uniform(tensor, 1.0 / std::sqrt(fan_in(start.parameters[0])), start.generator);
  }
}

void initialise_normal(at::Tensor& tensor, const Start& start) {
  const double std = given<double>(start, "std");
  tensor.normal_(0.0, std > 0 ? std : 1.0, start.generator);
}

void initialise_zero(at::Tensor& tensor, const Start& /*start*/) { tensor.zero_(); }

void initialise_norm(at::Tensor& tensor, const Start& start) {
  tensor.fill_(start.index == 0 ? 1.0 - given<double>(start, "offset") : 0.0);
}

void initialise_norm_weights(at::Tensor& tensor, const Start& start) {
  const double std = given<double>(start, "sinks_std");
  const bool sinks = start.parameters[start.index].name == "sinks";
  tensor.fill_(sinks ? 0.0 : 1.0);
  if (sinks && std > 0) tensor.normal_(0.0, std, start.generator);
}

void initialise_attention(at::Tensor& tensor, const Start& start) {
  const ParameterSpec& parameter = start.parameters[start.index];
  if (parameter.shape.size() == 1) {
    tensor.zero_();
  } else if (start.index == 0) {
    const double fans = static_cast<double>(parameter.shape[0] + parameter.shape[1]);
    uniform(tensor, std::sqrt(6.0 / fans), start.generator);
  } else {
    uniform(tensor, 1.0 / std::sqrt(fan_in(parameter)), start.generator);
  }
}

void initialise_additive_attention(at::Tensor& tensor, const Start& start) {
  const ParameterSpec& parameter = start.parameters[start.index];
  const double units = static_cast<double>(start.parameters[0].shape[0]);
  if (parameter.name == "normalize_scalar") {
    tensor.fill_(1.0 / std::sqrt(units));
  } else if (parameter.name == "normalize_bias") {
    tensor.zero_();
  } else {
    uniform(tensor, 1.0 / std::sqrt(static_cast<double>(parameter.shape.back())), start.generator);
  }
}

void initialise_experts(at::Tensor& tensor, const Start& start) {
  const bool biased = start.parameters[1].shape.size() == 1;  // then each matrix has its bias behind it
  const std::size_t bias = biased ? start.index % 2 : 0;
  ParameterSpec matrix = start.parameters[start.index - bias];
  const double std = given<double>(start, "std");
  if (start.index == 1 && bias == 1 && std > 0) {  // the router's, as transformers starts it
    tensor.normal_(0.0, std, start.generator);
    return;
  }
  if (matrix.shape.size() == 3) matrix.shape = {matrix.shape[2], matrix.shape[1]};  // of [parts, in, out]
  initialise_by_fan_in(tensor, {{&matrix, 1}, bias, start.attributes, start.generator});
}

void initialise_lstm(at::Tensor& tensor, const Start& start) {
  uniform(tensor, 1.0 / std::sqrt(fan_in(start.parameters[1])),
          start.generator);  // weight_hh_l0 [4 hidden, hidden]
}

}  // namespace ops

namespace {

/// FNV-1a. ATen's generator takes 32 bits of a seed: mix() spreads them.
std::uint64_t name_hash(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

template <class T>
const T& at_index(const std::vector<T>& values, int index) {
  return values[static_cast<std::size_t>(index)];
}

/// Whose parameter or buffer it is: a layer, or a node of a graph, and the number there.
struct Home {
  const Layer* layer;
  std::vector<ParameterSpec> siblings;
  std::size_t index;
};

Home home_of(const Layer& layer, const ResolvedLayer& resolved, std::vector<int> ResolvedNode::*list,
             const std::vector<ParameterSpec>& all, int index) {
  for (std::size_t i = 0; i < resolved.nodes.size(); ++i) {
    const std::vector<int>& mine = resolved.nodes[i].*list;
    const auto found = std::ranges::find(mine, index);
    if (found == mine.end()) continue;
    Home home{&layer.nodes[i], {}, static_cast<std::size_t>(found - mine.begin())};
    for (const int sibling : mine) home.siblings.push_back(at_index(all, sibling));
    return home;
  }
  return {&layer, all, static_cast<std::size_t>(index)};
}

/// What a call does with its parameters is not known: what has two dimensions or more is taken for a weight of
/// products, a `weight` of fewer for a norm's, the rest for biases.
void initialise_of_call(at::Tensor& tensor, const ops::Start& start) {
  if (tensor.dim() >= 2) {
    tensor.normal_(0.0, kSpreadOfCalls, start.generator);
  } else {
    tensor.fill_(start.parameters[start.index].name.ends_with("weight") ? 1.0 : 0.0);
  }
}

// Elements of what is drawn beside its place at one time.
constexpr std::int64_t kMostBeside = std::int64_t{1} << 29;

/// `to`: [shape...] float32, in the CPU's memory.
void draw(const ResolvedModel& model, int layer, int index, std::uint64_t seed, at::Tensor& to) {
  const int owner = at_index(model.layers, layer).weights_layer;
  const Layer& owner_layer = at_index(model.graph.layers, owner);
  const ResolvedLayer& resolved = at_index(model.layers, owner);
  const Home home = home_of(owner_layer, resolved, &ResolvedNode::parameters, resolved.parameters, index);
  const ops::Row* row = ops::find(home.layer->op);
  const ops::Initialise initialise = home.layer->call ? initialise_of_call : row ? row->initialise : nullptr;
  if (initialise == nullptr) {
    throw Error(ErrorKind::data, "layer \"" + owner_layer.name + "\" (" + owner_layer.op +
                                     "): no initial values; it can be planned, but not run");
  }
  const std::uint64_t name = name_hash(parameter_name(model, owner, static_cast<std::size_t>(index)));
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(mix({.seed = seed ^ name}, 0));
  initialise(to, {home.siblings, home.index, home.layer->attributes, generator});
}

/// The largest come first. One that has begun is drawn by one thread: its generator is a sequence.
void draw_all(const ResolvedModel& model, std::span<const ParameterPlace> places, std::span<at::Tensor> values,
              std::uint64_t seed) {
  std::atomic<std::size_t> next = 0;
  at::parallel_for(0, std::min(std::ssize(places), std::ptrdiff_t{at::get_num_threads()}), 1,
                   [&](std::int64_t, std::int64_t) {
                     for (std::size_t i = next++; i < places.size(); i = next++)
                       draw(model, places[i].layer, places[i].index, seed, values[i]);
                   });
}

bool takes_draws(const at::Tensor& place) {
  return place.is_cpu() && place.scalar_type() == at::kFloat && place.is_contiguous();
}

}  // namespace

void draw_parameters(const ResolvedModel& model, std::vector<ParameterPlace> places, std::uint64_t seed) {
  const auto elements = [](const ParameterPlace& place) { return place.to.numel(); };
  std::ranges::stable_sort(places, std::greater<>(), elements);
  for (std::span<const ParameterPlace> left = places; !left.empty();) {
    std::vector<at::Tensor> values;
    int beside = 0;
    std::int64_t elements_beside = 0;
    for (const ParameterPlace& place : left) {
      if (takes_draws(place.to)) {
        values.push_back(place.to);
        continue;
      }
      elements_beside += place.to.numel();
      if (++beside > 1 && (beside > at::get_num_threads() || elements_beside > kMostBeside)) break;
      values.push_back(at::empty(place.to.sizes(), at::kFloat));
    }
    const std::span<const ParameterPlace> drawn = left.first(values.size());
    draw_all(model, drawn, values, seed);
    for (std::size_t i = 0; i < drawn.size(); ++i)
      if (!drawn[i].to.is_same(values[i])) drawn[i].to.copy_(values[i]);
    left = left.subspan(drawn.size());
  }
}

at::Tensor initial_parameter(const ResolvedModel& model, int layer, int index, std::uint64_t seed,
                             DType dtype) {
  at::Tensor tensor =
      at::empty(at_index(at_index(model.layers, layer).parameters, index).shape, scalar_type(dtype));
  draw_parameters(model, {{layer, index, tensor}}, seed);
  return tensor;
}

at::Tensor initial_buffer(const ResolvedModel& model, int layer, int index, DType dtype) {
  const ResolvedLayer& resolved = at_index(model.layers, layer);
  const Home home =
      home_of(at_index(model.graph.layers, layer), resolved, &ResolvedNode::buffers, resolved.buffers, index);
  const ParameterSpec& buffer = at_index(resolved.buffers, index);
  const at::TensorOptions options(scalar_type(is_floating(buffer.dtype) ? dtype : buffer.dtype));
  const bool ones = !home.layer->call && buffer.name.ends_with("running_var");
  return ones ? at::ones(buffer.shape, options) : at::zeros(buffer.shape, options);
}

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::float32: return at::kFloat;
    case DType::float64: return at::kDouble;
    case DType::bfloat16: return at::kBFloat16;
    case DType::int64: return at::kLong;
    case DType::uint8: return at::kByte;
    case DType::boolean: return at::kBool;
  }
  throw Error(ErrorKind::internal, "scalar type: not a DType");
}

at::MemoryFormat memory_format(MemoryFormat format, std::int64_t dims) {
  return format == MemoryFormat::channels_last && dims == 4 ? at::MemoryFormat::ChannelsLast
                                                            : at::MemoryFormat::Contiguous;
}

}  // namespace pp::model
