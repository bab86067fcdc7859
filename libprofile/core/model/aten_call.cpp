// A layer's `call`: numbers that JSON cannot write, values of constants, and the keys.
#include "libprofile/core/model/aten_call.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "libprofile/core/json_fields.h"
#include "libprofile/core/model/constant_formula.h"
#include "libprofile/core/model/model_names.h"
#include "libprofile/core/schema/document_schema.h"

namespace pp {

double value_of(SpecialNumber number) {
  switch (number) {
    case SpecialNumber::negative_infinity: return -std::numeric_limits<double>::infinity();
    case SpecialNumber::infinity: return std::numeric_limits<double>::infinity();
    case SpecialNumber::nan: return std::numeric_limits<double>::quiet_NaN();
  }
  return 0;
}

namespace detail {

std::optional<double> number_of(const Json& json) {
  if (json.is_number()) return json.get<double>();
  if (!json.is_object() || json.size() != 1 || !json.contains("number") || !json["number"].is_string())
    return std::nullopt;
  const auto special = find_enum<SpecialNumber>(json["number"].get<std::string>());
  return special ? std::optional(value_of(*special)) : std::nullopt;
}

Json number_json(double value) {
  if (std::isfinite(value)) return value;
  const SpecialNumber special = std::isnan(value) ? SpecialNumber::nan
                                : value > 0       ? SpecialNumber::infinity
                                                  : SpecialNumber::negative_infinity;
  return {{"number", name_of(special)}};
}

}  // namespace detail

std::vector<double> values_of(const AtenConstant& constant) {
  std::vector<double> values;
  const auto take = [&](double value) { values.push_back(value); };
  if (const auto* formula = std::get_if<ConstantFormula>(&constant.values)) {
    for_each_value(*formula, constant.type.shape, take);
  } else if (const auto* numbers = std::get_if<std::vector<double>>(&constant.values)) {
    values = *numbers;
  } else {
    const auto& integers = std::get<std::vector<std::int64_t>>(constant.values);
    values.assign(integers.begin(), integers.end());
  }
  return values;
}

bool AtenConstant::operator==(const AtenConstant& other) const {
  if (name != other.name || type != other.type || values.index() != other.values.index()) return false;
  const auto* mine = std::get_if<std::vector<double>>(&values);
  if (mine == nullptr) return values == other.values;
  const auto same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  const auto& others = std::get<std::vector<double>>(other.values);
  return std::equal(mine->begin(), mine->end(), others.begin(), others.end(), same);
}

namespace {

using detail::fail_at;
using detail::in_quotes;
using detail::number_json;
using detail::number_of;

constexpr std::int64_t kMostBatch = std::int64_t{1} << 24;  // rows of a sample

void read_values(const Json& json, const std::string& pointer, AtenConstant& constant) {
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

  AtenValue read(const Json& json, const std::string& pointer, int depth = 0) const {
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

Json values_json(const AtenConstant& constant) {
  const auto* numbers = std::get_if<std::vector<double>>(&constant.values);
  if (numbers == nullptr) return std::get<std::vector<std::int64_t>>(constant.values);
  Json values = Json::array();
  for (const double value : *numbers) values.push_back(number_json(value));
  return values;
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

bool is_by_formula(const AtenConstant& constant) {
  return std::holds_alternative<ConstantFormula>(constant.values);
}
bool is_by_values(const AtenConstant& constant) { return !is_by_formula(constant); }

constexpr ValueType kFormulaType{
    .read =
        [](const Field&, const Json& json, const std::string& pointer, void* to) {
          auto& constant = *static_cast<AtenConstant*>(to);
          ObjectReader reader(json, pointer);
          constant.values = read_constant_formula(reader, constant.type);
          reader.finish();
        },
    .write =
        [](const Field&, const void* from) {
          return to_json(std::get<ConstantFormula>(static_cast<const AtenConstant*>(from)->values));
        },
    .schema = [](const Field&) -> Json {
      return {{"$ref", "#/definitions/formula"}};
    }};

constexpr ValueType kValuesType{
    .read = [](const Field&, const Json& json, const std::string& pointer,
               void* to) { read_values(json, pointer, *static_cast<AtenConstant*>(to)); },
    .write = [](const Field&,
                const void* from) { return values_json(*static_cast<const AtenConstant*>(from)); },
    .schema = [](const Field&) -> Json {
      return {{"type", "array"}, {"items", {{"$ref", "#/definitions/value"}}}};
    }};

constexpr ValueType kPreciseType{
    .read =
        [](const Field& field, const Json& json, const std::string& pointer, void* to) {
          DType dtype{};
          detail::read_value<DType>(field, json, pointer, &dtype);
          if (dtype != DType::float32)
            fail_at(pointer, "must be \"float32\"; calls without it compute in the type of the run");
          *static_cast<bool*>(to) = true;
        },
    .write = [](const Field&, const void*) -> Json { return name_of(DType::float32); },
    .schema = [](const Field&) { return detail::names_schema({std::string(name_of(DType::float32))}); }};

/// They name tensors of the call, which stand behind them: a check reads them.
constexpr ValueType kArgumentsType{.read = [](const Field&, const Json& json, const std::string& pointer,
                                              void*) { detail::object_at(json, pointer); },
                                   .write =
                                       [](const Field&, const void* from) {
                                         const auto& call = *static_cast<const AtenCall*>(from);
                                         Json json = Json::object();
                                         for (const auto& [name, value] : call.arguments)
                                           json[name] = std::visit(ConstantToJson{call}, value.value);
                                         return json;
                                       },
                                   .schema = [](const Field&) -> Json {
                                     return {{"type", "object"}};
                                   },
                                   .expected = [](const Field&) { return std::string("an object"); }};
constexpr auto kArguments = [] {
  FieldOf<AtenCall> made = whole<AtenCall>("arguments", kArgumentsType);
  made.required = true;
  return made;
}();

template <class Tensor>
void check_shape(Tensor& tensor, ObjectReader& reader) {
  if (too_large(tensor.type.shape)) reader.fail("shape", "has more than 2^40 elements; use smaller sizes");
}

template <class Tensor>
void check_tensor_name(Tensor& tensor, ObjectReader& reader) {
  if (!detail::is_dotted_name(tensor.name))
    reader.fail("name", in_quotes(tensor.name) + " is not a name; use letters, digits, _ - and . between them");
}

void check_values(AtenConstant& /*constant*/, ObjectReader& reader) {
  if (!reader.has("formula")) reader.raw("values");
}

void check_output(RowTensor& output, ObjectReader& reader) {
  if (reader.has("rows")) output.rows = reader.integer("rows", {.max = std::int64_t{1} << 20});
  const auto last = output.rows == 0 ? 0 : static_cast<std::int64_t>(output.type.shape.size());
  if (reader.has("batch_dim")) reader.integer("batch_dim", {.max = last});
}

template <class Tensors>
void check_count(std::string_view key, const Tensors& tensors, ObjectReader& reader) {
  if (tensors.size() > kMostTensors)
    reader.fail(key, "has more than " + std::to_string(kMostTensors) + " entries");
}

template <class Tensors>
void check_names(std::string_view key, const Tensors& tensors, ObjectReader& reader) {
  check_count(key, tensors, reader);
  std::set<std::string_view> names;
  std::size_t position = 0;
  for (const auto& tensor : tensors) {
    const std::string pointer =
        append_pointer(append_pointer(reader.pointer(), key), std::to_string(position++));
    if (!names.insert(tensor.name).second)
      fail_at(append_pointer(pointer, "name"),
              "duplicate name " + in_quotes(tensor.name) + "; rename one of them");
    if (key == "parameters" && !is_floating(tensor.type.dtype))
      fail_at(append_pointer(pointer, "dtype"), "only floating tensors are trained");
  }
}

void check_call(AtenCall& call, ObjectReader& reader) {
  check_names("parameters", call.parameters, reader);
  check_names("buffers", call.buffers, reader);
  check_names("constants", call.constants, reader);
  check_count("outputs", call.outputs, reader);
  const Arguments arguments(call);
  reader.members("arguments", [&](const std::string& name, const Json& json, const std::string& pointer) {
    if (call.arguments.size() >= kMostArguments)
      fail_at(pointer, "a call has at most " + std::to_string(kMostArguments) + " arguments");
    call.arguments.emplace(name, arguments.read(json, pointer));
  });
}

constexpr Object kCallTensor{
    "call_tensor",
    key<&NamedTensorType::name>("name"),
    check<check_tensor_name<NamedTensorType>>(),
    defaulted<&NamedTensorType::type, &TensorType::dtype>("dtype"),
    key<&NamedTensorType::type, &TensorType::shape>("shape", {.min = 1}),
    check<check_shape<NamedTensorType>>(),
};
constexpr Object kCallConstant{
    "call_constant",
    key<&AtenConstant::name>("name"),
    check<check_tensor_name<AtenConstant>>(),
    defaulted<&AtenConstant::type, &TensorType::dtype>("dtype"),
    key<&AtenConstant::type, &TensorType::shape>("shape", {.min = 1}),
    check<check_shape<AtenConstant>>(),
    check<check_values>(),
    whole<AtenConstant>("formula", kFormulaType).written_if<is_by_formula>(),
    whole<AtenConstant>("values", kValuesType).given<is_by_values>(),
};
constexpr Object kCallOutput{
    "call_output",
    defaulted<&RowTensor::type, &TensorType::dtype>("dtype"),
    key<&RowTensor::type, &TensorType::shape>("shape", {.min = 1}),
    check<check_shape<RowTensor>>(),
    check<check_output>(),
    optional<&RowTensor::rows>("rows"),
    optional<&RowTensor::batch_dim>("batch_dim"),
};
constexpr Object kCallKeys{
    "call",
    key<&AtenCall::target>("target"),
    kArguments,
    optional<&AtenCall::parameters>("parameters", kCallTensor),
    optional<&AtenCall::buffers>("buffers", kCallTensor),
    optional<&AtenCall::constants>("constants", kCallConstant),
    key<&AtenCall::outputs>("outputs", kCallOutput),
    defaulted<&AtenCall::flops>("flops"),
    optional<&AtenCall::precise>("precision", kPreciseType),
    check<check_call>(),
};

}  // namespace

AtenCall read_aten_call(ObjectReader& reader) {
  AtenCall call;
  read_keys(keys_of(kCallKeys), reader, &call);
  return call;
}

Json to_json(const AtenCall& call) { return to_json(kCallKeys, call); }

Keys aten_call_keys() { return keys_of(kCallKeys); }

}  // namespace pp
