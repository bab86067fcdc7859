// The keys of a layer's `call`.
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "libprofile/core/model/aten_call.h"
#include "libprofile/core/model/constant_formula.h"
#include "libprofile/core/model/model_names.h"

namespace pp {
namespace {

using detail::fail_at;
using detail::in_quotes;
using detail::number_json;
using detail::number_of;

constexpr std::int64_t kMostBatch = std::int64_t{1} << 24;  // rows of a sample

TensorType read_type(ObjectReader& reader) {
  TensorType type;
  if (reader.has("dtype")) type.dtype = reader.enumerator<DType>("dtype");
  type.shape = reader.integers("shape", {.min = 1});
  if (too_large(type.shape)) reader.fail("shape", "has more than 2^40 elements; use smaller sizes");
  return type;
}

template <class Read>
void read_list(ObjectReader& reader, std::string_view key, const Read& read) {
  if (!reader.has(key)) return;
  std::size_t count = 0;
  reader.objects(key, [&](ObjectReader& member) {
    if (++count > kMostTensors) reader.fail(key, "has more than " + std::to_string(kMostTensors) + " entries");
    read(member);
  });
}

template <class Named>
std::string read_name(ObjectReader& reader, const std::vector<Named>& others) {
  std::string name = reader.text("name");
  if (!detail::is_dotted_name(name))
    reader.fail("name", in_quotes(name) + " is not a name; use letters, digits, _ - and . between them");
  if (std::ranges::find(others, name, &Named::name) != others.end())
    reader.fail("name", "duplicate name " + in_quotes(name) + "; rename one of them");
  return name;
}

void read_values(ObjectReader& reader, AtenConstant& constant) {
  const Json& json = reader.raw("values");
  const std::string pointer = append_pointer(reader.pointer(), "values");
  const auto count = static_cast<std::size_t>(element_count(constant.type.shape));
  if (!json.is_array()) fail_at(pointer, "must be an array of numbers");
  if (count > kMostValues)
    fail_at(pointer, "a constant has at most " + std::to_string(kMostValues) + " values; make it a buffer");
  if (json.size() != count) {
    fail_at(pointer, "has " + std::to_string(json.size()) + " values, the shape " +
                         to_text(constant.type.shape) + " needs " + std::to_string(count));
  }
  if (is_floating(constant.type.dtype)) {
    auto& values = constant.values.emplace<std::vector<double>>();
    for (const Json& value : json) {
      const std::optional<double> number = number_of(value);
      if (!number) {
        fail_at(append_pointer(pointer, std::to_string(values.size())),
                "must be a number or {\"number\": \"-inf\"}, \"inf\" or \"nan\"");
      }
      values.push_back(*number);
    }
    return;
  }
  auto& values = constant.values.emplace<std::vector<std::int64_t>>();
  const std::int64_t most = constant.type.dtype == DType::boolean ? 1
                            : constant.type.dtype == DType::uint8 ? 255
                                                                  : std::numeric_limits<std::int64_t>::max();
  for (const Json& value : json) {
    const bool fits = value.is_number_integer() &&
                      !(value.is_number_unsigned() && value.get<std::int64_t>() < 0) &&
                      value.get<std::int64_t>() <= most &&
                      (constant.type.dtype == DType::int64 || value.get<std::int64_t>() >= 0);
    if (!fits) {
      fail_at(append_pointer(pointer, std::to_string(values.size())),
              "must be an integer" + (most < 256 ? " from 0 to " + std::to_string(most) : std::string()) +
                  ", as the type " + std::string(name_of(constant.type.dtype)) + " wants");
    }
    values.push_back(value.get<std::int64_t>());
  }
}

/// Arguments refer to the tensors of the call, which are read before.
class Arguments {
 public:
  explicit Arguments(const AtenCall& call) : call_(call) {}

  AtenValue read(const Json& json, const std::string& pointer, int depth) const {
    if (json.is_null()) return {};
    if (json.is_boolean()) return {json.get<bool>()};
    if (json.is_number_integer()) {
      if (json.is_number_unsigned() && json.get<std::int64_t>() < 0) fail_at(pointer, "must be below 2^63");
      return {json.get<std::int64_t>()};
    }
    if (json.is_number()) return {json.get<double>()};
    if (json.is_string()) return {json.get<std::string>()};
    if (json.is_array()) return {list(json, pointer, depth)};
    return object(json, pointer);
  }

 private:
  AtenList list(const Json& json, const std::string& pointer, int depth) const {
    if (depth >= kMostNested)
      fail_at(pointer, "lists stand at most " + std::to_string(kMostNested) + " deep in an argument");
    if (json.size() > kMostListed)
      fail_at(pointer, "has more than " + std::to_string(kMostListed) + " entries");
    AtenList values;
    for (const Json& element : json)
      values.push_back(read(element, append_pointer(pointer, std::to_string(values.size())), depth + 1));
    return values;
  }

  AtenValue object(const Json& json, const std::string& pointer) const {
    constexpr const char* kKeys =
        "an object has one key: input, parameter, buffer, constant, batch, dtype or "
        "number";
    if (json.size() != 1) fail_at(pointer, kKeys);
    ObjectReader reader(json, pointer);
    using Kind = TensorArgument::Kind;
    AtenValue value;
    if (reader.has("input")) {
      value.value = TensorArgument{Kind::input, static_cast<int>(reader.integer("input", {.max = 4096}))};
    } else if (reader.has("parameter")) {
      value.value = TensorArgument{Kind::parameter, find(call_.parameters, reader, "parameter")};
    } else if (reader.has("buffer")) {
      value.value = TensorArgument{Kind::buffer, find(call_.buffers, reader, "buffer")};
    } else if (reader.has("constant")) {
      value.value = TensorArgument{Kind::constant, find(call_.constants, reader, "constant")};
    } else if (reader.has("batch")) {
      const std::vector<std::int64_t> factors =
          reader.integers("batch", {.min = -kMostBatch, .max = kMostBatch});
      if (factors.size() != 2) reader.fail("batch", "must be [a, c], for a times the samples plus c");
      value.value = BatchInteger{factors[0], factors[1]};
    } else if (reader.has("dtype")) {
      value.value = reader.enumerator<DType>("dtype");
    } else if (reader.has("number")) {
      value.value = reader.enumerator<SpecialNumber>("number");
    } else {
      fail_at(pointer, kKeys);
    }
    return value;
  }

  template <class Named>
  static int find(const std::vector<Named>& tensors, ObjectReader& reader, std::string_view key) {
    const std::string name = reader.text(key);
    const auto found = std::ranges::find(tensors, name, &Named::name);
    if (found == tensors.end())
      reader.fail(key, "unknown name " + in_quotes(name) + "; list it under " + std::string(key) + "s");
    return static_cast<int>(found - tensors.begin());
  }

  const AtenCall& call_;
};

Json type_json(const TensorType& type) { return {{"dtype", name_of(type.dtype)}, {"shape", type.shape}}; }

Json named_json(const std::string& name, const TensorType& type) {
  Json json{{"name", name}};
  json.update(type_json(type));
  return json;
}

Json constant_json(const AtenConstant& constant) {
  Json json = named_json(constant.name, constant.type);
  if (const auto* formula = std::get_if<ConstantFormula>(&constant.values)) {
    json["formula"] = to_json(*formula);
    return json;
  }
  Json values = Json::array();
  if (const auto* numbers = std::get_if<std::vector<double>>(&constant.values)) {
    for (const double value : *numbers) values.push_back(number_json(value));
  } else {
    values = std::get<std::vector<std::int64_t>>(constant.values);
  }
  json["values"] = std::move(values);
  return json;
}

struct ConstantToJson {
  const AtenCall& call;

  Json operator()(std::monostate) const { return nullptr; }
  Json operator()(bool value) const { return value; }
  Json operator()(std::int64_t value) const { return value; }
  Json operator()(double value) const { return number_json(value); }
  Json operator()(const std::string& value) const { return value; }
  Json operator()(const BatchInteger& value) const {
    return {{"batch", Json::array({value.per_sample, value.fixed})}};
  }
  Json operator()(SpecialNumber value) const { return {{"number", name_of(value)}}; }
  Json operator()(DType value) const { return {{"dtype", name_of(value)}}; }
  Json operator()(const TensorArgument& value) const {
    const auto index = static_cast<std::size_t>(value.index);
    switch (value.kind) {
      case TensorArgument::Kind::input: return {{"input", value.index}};
      case TensorArgument::Kind::parameter: return {{"parameter", call.parameters.at(index).name}};
      case TensorArgument::Kind::buffer: return {{"buffer", call.buffers.at(index).name}};
      case TensorArgument::Kind::constant: return {{"constant", call.constants.at(index).name}};
    }
    return nullptr;
  }
  Json operator()(const AtenList& list) const {
    Json json = Json::array();
    for (const AtenValue& element : list) json.push_back(std::visit(*this, element.value));
    return json;
  }
};

}  // namespace

AtenCall read_aten_call(ObjectReader& reader) {
  AtenCall call;
  call.target = reader.text("target");
  const auto named = [&](std::string_view key, std::vector<NamedTensorType>& list, bool trained) {
    read_list(reader, key, [&](ObjectReader& member) {
      NamedTensorType tensor{read_name(member, list), {}};
      tensor.type = read_type(member);
      if (trained && !is_floating(tensor.type.dtype)) member.fail("dtype", "only floating tensors are trained");
      list.push_back(std::move(tensor));
    });
  };
  named("parameters", call.parameters, true);
  named("buffers", call.buffers, false);
  read_list(reader, "constants", [&](ObjectReader& member) {
    AtenConstant constant{read_name(member, call.constants), {}, {}};
    constant.type = read_type(member);
    if (member.has("formula")) {
      member.object("formula", [&](ObjectReader& formula) {
        constant.values = read_constant_formula(formula, constant.type);
      });
    } else {
      read_values(member, constant);
    }
    call.constants.push_back(std::move(constant));
  });
  read_list(reader, "outputs", [&](ObjectReader& member) {
    RowTensor output{read_type(member)};
    if (member.has("rows")) output.rows = member.integer("rows", {.max = std::int64_t{1} << 20});
    if (member.has("batch_dim")) {
      const auto last = output.rows == 0 ? 0 : static_cast<std::int64_t>(output.type.shape.size());
      output.batch_dim = member.integer("batch_dim", {.max = last});
    }
    call.outputs.push_back(std::move(output));
  });
  if (reader.has("flops")) call.flops = reader.number("flops");
  if (reader.has("precision")) {
    call.precise = reader.enumerator<DType>("precision") == DType::float32;
    if (!call.precise)
      reader.fail("precision", "must be \"float32\"; calls without it compute in the type of the run");
  }
  const Arguments arguments(call);
  reader.members("arguments", [&](const std::string& name, const Json& json, const std::string& pointer) {
    if (call.arguments.size() >= kMostArguments)
      fail_at(pointer, "a call has at most " + std::to_string(kMostArguments) + " arguments");
    call.arguments.emplace(name, arguments.read(json, pointer, 0));
  });
  return call;
}

Json to_json(const AtenCall& call) {
  Json json{{"target", call.target}};
  json["arguments"] = Json::object();
  for (const auto& [name, value] : call.arguments)
    json["arguments"][name] = std::visit(ConstantToJson{call}, value.value);
  for (const auto& [key, list] :
       {std::pair("parameters", &call.parameters), std::pair("buffers", &call.buffers)}) {
    for (const NamedTensorType& tensor : *list) json[key].push_back(named_json(tensor.name, tensor.type));
  }
  for (const AtenConstant& constant : call.constants) json["constants"].push_back(constant_json(constant));
  json["outputs"] = Json::array();
  for (const RowTensor& output : call.outputs) {
    Json& entry = json["outputs"].emplace_back(type_json(output.type));
    if (output.rows != 1) entry["rows"] = output.rows;
    if (output.batch_dim != 0) entry["batch_dim"] = output.batch_dim;
  }
  json["flops"] = call.flops;
  if (call.precise) json["precision"] = name_of(DType::float32);
  return json;
}

}  // namespace pp
