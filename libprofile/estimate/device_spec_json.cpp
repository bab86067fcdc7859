// The keys of pp.device.
#include <nlohmann/json.hpp>
#include <set>

#include "libprofile/core/shared_fields.h"
#include "libprofile/estimate/device_spec.h"

namespace pp::profile {
namespace {

constexpr NumberRange kReached{.min = 0.01, .max = 1};
constexpr NumberRange kFlops{.min = 1e6, .max = 1e18};  // outside it is another unit
constexpr NumberRange kBandwidth{.min = 1e6, .max = 1e14};

/// The weights' type, or a narrower one of products.
constexpr ValueType kRunType{
    .read =
        [](const Field& field, const Json& json, const std::string& pointer, void* to) {
          auto& type = *static_cast<RunType*>(to);
          const auto narrow = json.is_string() ? find_enum<NarrowType>(json.get<std::string>()) : std::nullopt;
          if (narrow)
            type = *narrow;
          else
            kWeightType.read(field, json, pointer, &type.dtype);
        },
    .write = [](const Field&, const void* from) -> Json { return name_of(*static_cast<const RunType*>(from)); },
    .schema = [](const Field&) { return detail::names_schema(run_type_names()); },
    .expected = detail::value_expected<DType>};

constexpr Object kRates{
    "device_type",
    key<&TypeRates::dtype>("dtype", kRunType),
    key<&TypeRates::product_flops_per_s>("product_flops_per_s", kFlops),
    key<&TypeRates::vector_flops_per_s>("vector_flops_per_s", kFlops),
    key<&TypeRates::efficiency>("efficiency", kReached),
    key<&TypeRates::half_flops>("half_flops", {.max = 1e15}),
    optional<&TypeRates::attention_efficiency>("attention_efficiency", kReached),
    optional<&TypeRates::unaligned_efficiency>("unaligned_efficiency", kReached),
};

constexpr Object kTensorLink{
    "tensor_link",
    key<&Link::bandwidth>("bandwidth_bytes_per_s", kBandwidth),
    key<&Link::latency>("latency_s", {.max = 1}),
};

void check_types(DeviceSpec& device, ObjectReader& reader) {
  if (device.types.empty()) reader.fail("types", "has no entry; add the rates of one type, such as float32");
  std::set<std::string> types;
  look_at_each(reader, "types", [&](ObjectReader& rates) {
    const std::string type = rates.text("dtype");
    if (!types.insert(type).second) rates.fail("dtype", type + " is there twice; keep one");
  });
}

void check_context(const DeviceSpec& device, ObjectReader& reader) {
  if (reader.has("context_bytes")) reader.integer("context_bytes", {.max = device.memory.value});
}

constexpr Object kSpec{
    "device",
    key<&DeviceSpec::name>("name"),
    key<&DeviceSpec::source>("source"),
    key<&DeviceSpec::kind>("kind"),
    key<&DeviceSpec::memory>("memory_bytes"),
    check<check_context>(),
    optional<&DeviceSpec::context>("context_bytes"),
    optional<&DeviceSpec::memory_rounding>("memory_rounding", {1, 10}),
    optional<&DeviceSpec::portable_products>("portable_products", kReached),
    key<&DeviceSpec::memory_bandwidth>("memory_bandwidth_bytes_per_s", kBandwidth),
    key<&DeviceSpec::memory_efficiency>("memory_efficiency", kReached),
    key<&DeviceSpec::cache>("cache_bytes"),
    key<&DeviceSpec::cache_bandwidth>("cache_bandwidth_bytes_per_s", kBandwidth),
    key<&DeviceSpec::overlap>("overlap", kShare),
    key<&DeviceSpec::kernel_overhead>("kernel_overhead_s", {.max = 1}),
    optional<&DeviceSpec::tensor_link>("tensor_link", kTensorLink),
    key<&DeviceSpec::types>("types", kRates),
    check<check_types>(),
};

}  // namespace

Keys device_spec_keys() { return keys_of(kSpec); }

DeviceSpec device_spec_from_json(const Json& json) { return document_from_json(kSpec, json); }

Json to_json(const DeviceSpec& device) { return document_json(kSpec, device); }

DeviceSpec parse_device_spec(std::string_view text) { return device_spec_from_json(parse_json(text)); }

}  // namespace pp::profile
