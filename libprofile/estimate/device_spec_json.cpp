// The keys of pp.device.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "libprofile/estimate/device_spec.h"

namespace pp::profile {
namespace {

constexpr std::string_view kFormat = "pp.device";
constexpr int kVersion = 1;
constexpr NumberRange kShare{.min = 0.01, .max = 1};
constexpr NumberRange kFlops{.min = 1e6, .max = 1e18};  // outside it is another unit
constexpr NumberRange kRounding{.min = 1, .max = 10};
constexpr NumberRange kBandwidth{.min = 1e6, .max = 1e14};

TypeRates read_rates(ObjectReader& reader) {
  TypeRates rates;
  const auto narrow = find_enum<NarrowType>(reader.text("dtype"));
  rates.dtype = narrow ? RunType(*narrow) : RunType(weight_type_from_json(reader));
  rates.product_flops_per_s = reader.number("product_flops_per_s", kFlops);
  rates.vector_flops_per_s = reader.number("vector_flops_per_s", kFlops);
  rates.efficiency = reader.number("efficiency", kShare);
  rates.half_flops = reader.number("half_flops", {.max = 1e15});
  if (reader.has("attention_efficiency"))
    rates.attention_efficiency = reader.number("attention_efficiency", kShare);
  if (reader.has("unaligned_efficiency"))
    rates.unaligned_efficiency = reader.number("unaligned_efficiency", kShare);
  return rates;
}

DeviceSpec read_spec(ObjectReader& reader) {
  DeviceSpec device;
  device.name = reader.text("name");
  device.source = reader.text("source");
  device.kind = reader.enumerator<DeviceKind>("kind");
  device.memory = Bytes(reader.integer("memory_bytes"));
  if (reader.has("context_bytes"))
    device.context = Bytes(reader.integer("context_bytes", {.max = device.memory.value}));
  if (reader.has("memory_rounding")) device.memory_rounding = reader.number("memory_rounding", kRounding);
  device.memory_bandwidth = BytesPerSecond(reader.number("memory_bandwidth_bytes_per_s", kBandwidth));
  device.memory_efficiency = reader.number("memory_efficiency", kShare);
  device.cache = Bytes(reader.integer("cache_bytes"));
  device.cache_bandwidth = BytesPerSecond(reader.number("cache_bandwidth_bytes_per_s", kBandwidth));
  device.overlap = reader.number("overlap", {.max = 1});
  device.kernel_overhead = Seconds(reader.number("kernel_overhead_s", {.max = 1}));
  if (reader.has("tensor_link")) {
    reader.object("tensor_link", [&](ObjectReader& member) {
      device.tensor_link = Link{.bandwidth = BytesPerSecond(member.number("bandwidth_bytes_per_s", kBandwidth)),
                                .latency = Seconds(member.number("latency_s", {.max = 1}))};
    });
  }
  reader.objects("types", [&](ObjectReader& member) {
    const TypeRates rates = read_rates(member);
    if (std::ranges::count(device.types, rates.dtype, &TypeRates::dtype) > 0)
      member.fail("dtype", std::string(name_of(rates.dtype)) + " is there twice; keep one");
    device.types.push_back(rates);
  });
  if (device.types.empty()) reader.fail("types", "has no entry; add the rates of one type, such as float32");
  return device;
}

Json rates_json(const TypeRates& rates) {
  Json json{{"dtype", name_of(rates.dtype)},
            {"product_flops_per_s", rates.product_flops_per_s},
            {"vector_flops_per_s", rates.vector_flops_per_s},
            {"efficiency", rates.efficiency},
            {"half_flops", rates.half_flops}};
  if (rates.attention_efficiency) json["attention_efficiency"] = *rates.attention_efficiency;
  if (rates.unaligned_efficiency != 1) json["unaligned_efficiency"] = rates.unaligned_efficiency;
  return json;
}

}  // namespace

DeviceSpec device_spec_from_json(const Json& json) {
  DeviceSpec device;
  read_document(json, kFormat, kVersion, [&](ObjectReader& reader) { device = read_spec(reader); });
  return device;
}

Json to_json(const DeviceSpec& device) {
  Json json{{"format", kFormat},       {"version", kVersion},          {"name", device.name},
            {"source", device.source}, {"kind", name_of(device.kind)}, {"memory_bytes", device.memory.value}};
  if (device.context > Bytes(0)) json["context_bytes"] = device.context.value;
  if (device.memory_rounding > 1) json["memory_rounding"] = device.memory_rounding;
  json.update(Json{{"memory_bandwidth_bytes_per_s", device.memory_bandwidth.value},
                   {"memory_efficiency", device.memory_efficiency},
                   {"cache_bytes", device.cache.value},
                   {"cache_bandwidth_bytes_per_s", device.cache_bandwidth.value},
                   {"overlap", device.overlap},
                   {"kernel_overhead_s", device.kernel_overhead.count()}});
  if (device.tensor_link) {
    json["tensor_link"] = {{"bandwidth_bytes_per_s", device.tensor_link->bandwidth.value},
                           {"latency_s", device.tensor_link->latency.count()}};
  }
  json["types"] = Json::array();
  for (const TypeRates& rates : device.types) json["types"].push_back(rates_json(rates));
  return json;
}

DeviceSpec parse_device_spec(std::string_view text) { return device_spec_from_json(parse_json(text)); }

}  // namespace pp::profile
