// The examples of the table of operations, and operations that are bound to one.
#include "tests/libprofile/model/op_cases.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <ranges>
#include <stdexcept>

namespace pp::model::test {
namespace {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (const auto part : std::views::split(text, separator)) parts.emplace_back(part.begin(), part.end());
  return parts;
}

std::vector<std::int64_t> numbers(std::string_view text, char separator) {
  std::vector<std::int64_t> values;
  for (const std::string& part : split(text, separator)) values.push_back(std::stoll(part));
  return values;
}

/// `int64:7`; `3x4` of float64
TensorType type_of(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return {numbers(text, 'x'), DType::float64};
  return {numbers(text.substr(colon + 1), 'x'), *find_enum<DType>(text.substr(0, colon))};
}

/// A value like that of the attribute.
Attribute value_of(const Attribute& type, const std::string& text) {
  struct Reader {
    const std::string& text;
    Attribute operator()(bool) const { return text == "true"; }
    Attribute operator()(std::int64_t) const { return std::stoll(text); }
    Attribute operator()(double) const { return std::stod(text); }
    Attribute operator()(const std::string&) const { return text; }
    Attribute operator()(const std::vector<std::int64_t>&) const { return numbers(text, ','); }
  };
  return std::visit(Reader{text}, type);
}

OpCase case_of(const OpRow& row, std::string_view example) {
  OpCase made{std::string(row.name), {}, {}};
  for (const std::string& word : split(example, ' ')) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) {
      made.inputs.push_back(type_of(word));
      continue;
    }
    const std::string name = word.substr(0, equals);
    const auto spec = std::ranges::find(row.attributes, name, &AttributeSpec::name);
    if (spec == row.attributes.end()) throw std::invalid_argument(made.op + " has no attribute " + name);
    made.attributes.emplace(name, value_of(spec->type, word.substr(equals + 1)));
  }
  return made;
}

}  // namespace

std::vector<OpCase> op_cases() {
  std::vector<OpCase> cases;
  for (const OpRow& row : op_table())
    for (const std::string_view example : row.examples) cases.push_back(case_of(row, example));
  return cases;
}

std::string to_text(const OpCase& op_case) {
  std::string text = op_case.op;
  for (const TensorType& input : op_case.inputs) text.append(" ").append(pp::to_text(input.shape));
  for (const auto& [name, value] : op_case.attributes) text.append(" ").append(name);
  return text;
}

Attributes complete(std::string_view op, const Attributes& given) {
  return complete_attributes(*find_op(op), given, "/attributes");
}

Tensors OpInstance::operator()(Tensors* saved) const {
  auto generator = at::make_generator<at::CPUGeneratorImpl>();
  LayerContext context{.key = {.seed = 3}, .layer = 1, .generator = &generator, .buffers = {}};
  context.saved = saved;
  return forward(inputs, weights, context);
}

OpInstance instantiate(const OpCase& op_case, std::int64_t samples) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(17);
  const auto draw = [&](Shape shape, DType dtype) {
    if (dtype == DType::int64) return at::empty(shape, at::kLong).random_(0, 5, generator);
    return at::empty(shape, at::kDouble).normal_(0, 1, generator);
  };
  const Attributes attributes = complete(op_case.op, op_case.attributes);
  OpInstance instance{.forward = bind_layer(op_case.op, attributes).forward,
                      .inferred = find_op(op_case.op)->result(attributes, op_case.inputs),
                      .inputs = {},
                      .weights = {}};
  for (const TensorType& input : op_case.inputs) {
    Shape shape{samples};
    shape.insert(shape.end(), input.shape.begin(), input.shape.end());
    instance.inputs.push_back(draw(std::move(shape), input.dtype));
  }
  for (const ParameterSpec& parameter : instance.inferred.parameters) {
    instance.weights.push_back(draw(parameter.shape, DType::float64));
  }
  return instance;
}

}  // namespace pp::model::test
