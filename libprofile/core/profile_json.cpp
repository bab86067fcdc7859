// The keys of pp.profile.
#include <algorithm>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "libprofile/core/profile.h"
#include "libprofile/core/schema/document_schema.h"
#include "libprofile/core/shared_fields.h"

namespace pp {
namespace {

/// Samples of a micro-batch.
constexpr IntegerRange kSizes{.min = 1, .max = std::numeric_limits<int>::max()};

/// A time without samples is the number that it was read from: older documents have the median alone.
constexpr ValueType kTimeOrMedian{
    .read =
        [](const Field&, const Json& json, const std::string& pointer, void* to) {
          if (json.is_object()) return detail::read_object(keys_of(kTime), json, pointer, to);
          static_cast<TimeStat*>(to)->median = Seconds(detail::number_at(json, pointer, {}));
        },
    .write = [](const Field&, const void* from) -> Json {
      const auto& time = *static_cast<const TimeStat*>(from);
      return time.samples > 0 ? to_json(kTime, time) : Json(time.median.count());
    },
    .schema = [](const Field&) -> Json {
      return {{"anyOf", {{{"$ref", "#/definitions/time"}}, detail::number_schema({})}}};
    },
    .expected = [](const Field&) -> std::string { return "an object"; }};

constexpr Object kPassTimes{
    "pass_times",
    key<&LayerTimes::forward>("forward_s", kTimeOrMedian),
    key<&LayerTimes::backward>("backward_s", kTimeOrMedian),
    key<&LayerTimes::input_gradient>("input_gradient_s", kTimeOrMedian),
    key<&LayerTimes::weight_gradient>("weight_gradient_s", kTimeOrMedian),
};

bool fits(const LayerPoint& point) { return !point.out_of_memory; }

void check_saved_input(const LayerPoint& point, ObjectReader& reader) {
  if (fits(point)) reader.integer("saved_input_bytes", {.max = point.saved.value});
}

constexpr Object kPoint{
    "point",
    key<&LayerPoint::micro_batch_size>("micro_batch_size", kSizes),
    optional<&LayerPoint::out_of_memory>("out_of_memory"),
    key<&LayerPoint::forward>("forward_s", kTime).given<fits>(),
    key<&LayerPoint::backward>("backward_s", kTime).given<fits>(),
    optional<&LayerPoint::input_gradient>("input_gradient_s", kTime).given<fits>(),
    optional<&LayerPoint::weight_gradient>("weight_gradient_s", kTime).given<fits>(),
    optional<&LayerPoint::first>("first", kPassTimes).given<fits>(),
    optional<&LayerPoint::alone>("alone", kPassTimes).given<fits>(),
    optional<&LayerPoint::in_part>("in_part", kPassTimes).given<fits>(),
    key<&LayerPoint::output>("output_bytes").given<fits>(),
    key<&LayerPoint::saved>("saved_bytes").given<fits>(),
    check<check_saved_input>(),
    key<&LayerPoint::saved_input>("saved_input_bytes").given<fits>(),
    key<&LayerPoint::workspace>("workspace_bytes").given<fits>(),
    optional<&LayerPoint::waiting>("waiting_bytes").given<fits>(),
    optional<&LayerPoint::transfer>("transfer_s").given<fits>(),
    optional<&LayerPoint::gradient_transfer>("gradient_transfer_s").given<fits>(),
};

// --- what Piper's files say

constexpr Object kVariant{
    "piper_costs",
    key<&PiperVariant::time>("time_s"),
    key<&PiperVariant::saved>("saved_bytes"),
    key<&PiperVariant::fixed>("fixed_bytes"),
};

struct Edge {
  std::string layer;
  Bytes bytes;
};
constexpr Object kEdge{
    "piper_edge",
    key<&Edge::layer>("layer"),
    key<&Edge::bytes>("bytes"),
};
using Edges = std::map<std::string, Bytes>;
constexpr ValueType kEdges{.read =
                               [](const Field& field, const Json& json, const std::string& pointer, void* to) {
                                 std::vector<Edge> edges;
                                 detail::read_value<std::vector<Edge>>(field, json, pointer, &edges);
                                 for (const Edge& edge : edges)
                                   (*static_cast<Edges*>(to))[edge.layer] = edge.bytes;
                               },
                           .write =
                               [](const Field& field, const void* from) {
                                 std::vector<Edge> edges;
                                 for (const auto& [layer, bytes] : *static_cast<const Edges*>(from))
                                   edges.push_back({layer, bytes});
                                 return detail::write_value<std::vector<Edge>>(field, &edges);
                               },
                           .schema = detail::value_schema<std::vector<Edge>>,
                           .expected = detail::value_expected<std::vector<Edge>>};

constexpr Object kPiperShare{
    "piper_share",
    key<&PiperShare::plain>("plain", kVariant),
    optional<&PiperShare::recompute>("recompute", kVariant),
    key<&PiperShare::incoming>("incoming", kEdges).of(kEdge),
    optional<&PiperShare::outgoing>("outgoing", kEdges).of(kEdge),
    key<&PiperShare::degree>("degree", {.min = 2}),
    key<&PiperShare::parameters>("parameter_bytes"),
};

void check_degrees(const PiperLayer&, ObjectReader& reader) {
  std::int64_t least = 2;
  look_at_each(reader, "tensor", [&](ObjectReader& share) {
    least = share.integer("degree", {.min = least, .max = std::numeric_limits<int>::max()}) + 1;
  });
}

constexpr Object kPiper{
    "piper",
    key<&PiperLayer::plain>("plain", kVariant),
    optional<&PiperLayer::recompute>("recompute", kVariant),
    key<&PiperLayer::incoming>("incoming", kEdges).of(kEdge),
    optional<&PiperLayer::outgoing>("outgoing", kEdges).of(kEdge),
    check<check_degrees>(),
    optional<&PiperLayer::tensor>("tensor", kPiperShare),
};

// --- layers, optimizers, the device

void check_trained(const LayerProfile& layer, ObjectReader& reader) {
  if (reader.has("trained_parameter_bytes"))
    reader.integer("trained_parameter_bytes", {.max = layer.parameters.value});
}

void check_experts(const LayerProfile& layer, ObjectReader& reader) {
  if (reader.has("expert_parameter_bytes"))
    reader.integer("expert_parameter_bytes", {.max = trained_bytes(layer).value});
}

constexpr Object kLayer{
    "profiled_layer",
    key<&LayerProfile::name>("name"),
    key<&LayerProfile::parameter_count>("parameter_count"),
    key<&LayerProfile::parameters>("parameter_bytes"),
    check<check_trained>(),
    optional<&LayerProfile::trained>("trained_parameter_bytes"),
    check<check_experts>(),
    optional<&LayerProfile::experts>("expert_parameter_bytes"),
    key<&LayerProfile::buffers>("buffer_bytes"),
    key<&LayerProfile::forward_flops_per_sample>("forward_flops_per_sample"),
    key<&LayerProfile::points>("points", kPoint),
    optional<&LayerProfile::piper>("piper", kPiper),
};

constexpr Object kProfiledDevice{
    "profiled_device",
    key<&ProfiledDevice::kind>("kind"),
    key<&ProfiledDevice::name>("name"),
    key<&ProfiledDevice::cores_per_device>("cores_per_device"),
    key<&ProfiledDevice::devices_busy>("devices_busy", {.min = 1}),
    key<&ProfiledDevice::memory>("memory_bytes"),
    optional<&ProfiledDevice::peak_flops_per_s>("peak_flops_per_s", {1e6, 1e18}),
};

constexpr Object kWholeModel{
    "whole_model",
    key<&WholeModelPoint::micro_batch_size>("micro_batch_size", kSizes),
    key<&WholeModelPoint::forward>("forward_s", kTime),
    key<&WholeModelPoint::backward>("backward_s", kTime),
    key<&WholeModelPoint::peak>("peak_bytes"),
};

constexpr Object kUpdate{
    "update",
    key<&UpdatePoint::parameters>("parameter_bytes", {.min = 1}),
    key<&UpdatePoint::update>("update_s", kTime),
};

constexpr Object kOptimizer{
    "optimizer",
    key<&OptimizerProfile::name>("name"),
    key<&OptimizerProfile::state_bytes_per_parameter_byte>("state_bytes_per_parameter_byte",
                                                           {.max = kLargestStateRatio}),
    key<&OptimizerProfile::update>("update_s", kTime),
    key<&OptimizerProfile::parameters>("parameter_bytes"),
    optional<&OptimizerProfile::new_version>("new_version", kUpdate),
    optional<&OptimizerProfile::parts>("parts", kUpdate),
};

constexpr Object kOverhead{
    "overhead",
    key<&OperationOverhead::forward>("forward_s", kTime),
    key<&OperationOverhead::backward>("backward_s", kTime),
};

// --- the document

constexpr ValueType kTrainerWithin{
    .read = [](const Field&, const Json& json, const std::string& pointer,
               void* to) { *static_cast<TrainerSpec*>(to) = trainer_from_json(json, pointer); },
    .write = [](const Field&, const void* from) { return to_json(*static_cast<const TrainerSpec*>(from)); },
    .schema = [](const Field&) -> Json {
      return {{"$ref", "#/definitions/trainer"}};
    }};

void check_hash(Profile& profile, ObjectReader& reader) {
  const std::string actual = model_hash(profile.model);
  if (!reader.has("model_hash")) profile.model_hash = actual;
  if (profile.model_hash == actual) return;
  reader.fail("model_hash", "is " + profile.model_hash + ", but the model in this file has " + actual +
                                "; the model was changed after profiling, profile it again");
}

void check_products(const Profile& profile, ObjectReader& reader) {
  require_bfloat16(profile.products, profile.dtype, reader);
}

constexpr Object kContextGroup{
    "context_group",
    key<&ContextGroup::degree>("degree", {.min = 2}),
    key<&ContextGroup::sum_s_per_byte>("sum_s_per_byte", {.max = 1}),
};

void check_context_group(const Profile& profile, ObjectReader& reader) {
  if (profile.context_parallel.degree == 1) return;
  look_at(reader, "context_parallel", [&](ObjectReader& member) {
    member.integer("degree", {.min = 2, .max = std::numeric_limits<int>::max() / profile.tensor_degree});
  });
}

constexpr Object kExpertGroup{
    "expert_group",
    key<&ExpertGroup::degree>("degree", {.min = 1}),
    key<&ExpertGroup::sum_s_per_byte>("sum_s_per_byte", {.max = 1}),
    key<&ExpertGroup::expert_sum_s_per_byte>("expert_sum_s_per_byte", {.max = 1}),
};

/// Members of a tensor and context group have whole groups of experts, or the other way round.
void check_expert_group(const Profile& profile, ObjectReader& reader) {
  const int experts = profile.expert_parallel.degree,
            others = profile.tensor_degree * profile.context_parallel.degree;
  if (experts % others == 0 || others % experts == 0) return;
  reader.fail("expert_parallel", "has degree " + std::to_string(experts) +
                                     ", which must be a multiple or a divisor of " + std::to_string(others) +
                                     ", tensor times context degree");
}

void check_shard_group(const Profile& profile, ObjectReader& reader) {
  const int shards = profile.shard_group.degree;
  if (shards == 1) return;
  if (profile.expert_parallel.degree > 1)
    reader.fail("shard_degree", "is above 1 where experts are divided, too, which has no prices; divide one");
  const int others = profile.tensor_degree * profile.context_parallel.degree;
  reader.integer("shard_degree", {.min = 2, .max = std::numeric_limits<int>::max() / others});
}

void check_autocast(const Profile& profile, ObjectReader& reader) {
  require_float32(profile.autocast, profile.dtype, reader);
}

void check_sizes(const Profile& profile, ObjectReader& reader) {
  const std::vector<std::int64_t>& sizes = profile.micro_batch_sizes;
  if (sizes.empty() || std::ranges::adjacent_find(sizes, std::greater_equal<>()) != sizes.end())
    reader.fail("micro_batch_sizes", to_text(sizes) + " must hold at least one size, ascending, each once");
}

void check_points(const LayerProfile& layer, const Profile& profile, ObjectReader& reader) {
  if (std::ranges::equal(layer.points, profile.micro_batch_sizes, {}, &LayerPoint::micro_batch_size)) return;
  reader.fail("points", "must have one entry per size in /micro_batch_sizes, " +
                            to_text(profile.micro_batch_sizes) + ", in that order");
}

/// The layers are those of the model, in its order.
void check_layers(const Profile& profile, ObjectReader& reader) {
  auto layer = profile.layers.begin();
  look_at_each(reader, "layers", [&](ObjectReader& member) { check_points(*layer++, profile, member); });
  const auto& layers = profile.model.layers;
  if (profile.layers.size() != layers.size()) {
    reader.fail("layers", "has " + std::to_string(profile.layers.size()) + " entries, but the model has " +
                              std::to_string(layers.size()) + " layers; profile the model again");
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (profile.layers[i].name == layers[i].name) continue;
    reader.fail("layers", "entry " + std::to_string(i) + " is \"" + profile.layers[i].name +
                              "\", but that layer of the model is \"" + layers[i].name +
                              "\"; profile the model again");
  }
}

void check_loss(const Profile& profile, ObjectReader& reader) {
  if (profile.loss)
    look_at(reader, "loss", [&](ObjectReader& member) { check_points(*profile.loss, profile, member); });
}

void check_kernels(Profile& profile, ObjectReader& reader) { sort_kernels(profile.kernels, reader); }

constexpr Object kProfile{
    "profile",
    defaulted<&Profile::context>("context"),
    key<&Profile::model>("model", kModel),
    defaulted<&Profile::model_hash>("model_hash"),
    check<check_hash>(),
    key<&Profile::device>("device", kProfiledDevice),
    key<&Profile::dtype>("dtype", kWeightType),
    optional<&Profile::products>("products"),
    check<check_products>(),
    optional<&Profile::memory_format>("memory_format"),
    optional<&Profile::autocast>("autocast"),
    check<check_autocast>(),
    key<&Profile::mode>("mode"),
    optional<&Profile::tensor_degree>("tensor_degree", {.min = 1}),
    optional<&Profile::context_parallel>("context_parallel", kContextGroup),
    check<check_context_group>(),
    optional<&Profile::expert_parallel>("expert_parallel", kExpertGroup),
    check<check_expert_group>(),
    optional<&Profile::shard_group, &ShardGroup::degree>("shard_degree", {.min = 1}),
    optional<&Profile::shard_group, &ShardGroup::sharding>("sharding"),
    check<check_shard_group>(),
    optional<&Profile::trainer>("trainer", kTrainerWithin),
    key<&Profile::micro_batch_sizes>("micro_batch_sizes", kSizes),
    check<check_sizes>(),
    key<&Profile::layers>("layers", kLayer),
    check<check_layers>(),
    optional<&Profile::loss>("loss", kLayer),
    check<check_loss>(),
    key<&Profile::whole_model>("whole_model", kWholeModel),
    key<&Profile::optimizers>("optimizers", kOptimizer),
    optional<&Profile::operation_overhead>("operation_overhead", kOverhead),
    optional<&Profile::kernels>("kernels", kKernel),
    check<check_kernels>(),
    key<&Profile::estimated>("estimated"),
};

}  // namespace

const ValueType kWeightType{
    .read =
        [](const Field& field, const Json& json, const std::string& pointer, void* to) {
          detail::read_value<DType>(field, json, pointer, to);
          const std::string name(name_of(*static_cast<DType*>(to)));
          if (!is_floating(*static_cast<DType*>(to)))
            detail::fail_at(pointer, "weights cannot be " + name + "; use one of float32, float64, bfloat16");
        },
    .write = detail::write_value<DType>,
    .schema =
        [](const Field&) {
          std::vector<std::string> names;
          for (const auto& [type, name] : EnumNames<DType>::table)
            if (is_floating(type)) names.emplace_back(name);
          return detail::names_schema(names);
        },
    .expected = detail::value_expected<DType>};

const ValueType kModel{
    .read = [](const Field&, const Json& json, const std::string& pointer,
               void* to) { *static_cast<ModelGraph*>(to) = model_from_json(json, pointer); },
    .write = [](const Field&, const void* from) { return to_json(*static_cast<const ModelGraph*>(from)); },
    .schema = [](const Field&) -> Json {
      return {{"$ref", "#/definitions/model"}};
    }};

void require_bfloat16(std::optional<NarrowType> products, DType dtype, ObjectReader& reader) {
  if (!products || dtype == DType::bfloat16) return;
  reader.fail("products", "are of a narrow type beside bfloat16 alone, and dtype is " +
                              std::string(name_of(dtype)) + "; write bfloat16, or leave it out");
}

void require_float32(std::optional<Autocast> autocast, DType dtype, ObjectReader& reader) {
  if (!autocast || dtype == DType::float32) return;
  reader.fail("autocast", "casts products of float32 weights, and dtype is " + std::string(name_of(dtype)) +
                              "; write float32, or leave it out");
}

Keys profile_keys() { return keys_of(kProfile); }

Profile profile_from_json(const Json& json) { return document_from_json(kProfile, json); }

Json to_json(const Profile& profile) { return document_json(kProfile, profile); }

Profile parse_profile(std::string_view text) { return profile_from_json(parse_json(text)); }

}  // namespace pp
