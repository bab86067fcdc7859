// Attributes by name, and what rows of the table are built from.
#include "libprofile/core/ops/rows.h"

#include <utility>

namespace pp {

namespace {

template <class T>
const T& get(const Attributes& attributes, std::string_view name) {
  const auto found = attributes.find(name);
  const T* value = found == attributes.end() ? nullptr : std::get_if<T>(&found->second);
  if (value == nullptr)
    throw Error(ErrorKind::internal, "no attribute \"" + std::string(name) + "\" of the type asked for");
  return *value;
}

}  // namespace

std::int64_t integer(const Attributes& attributes, std::string_view name) {
  return get<std::int64_t>(attributes, name);
}
double number(const Attributes& attributes, std::string_view name) { return get<double>(attributes, name); }
bool boolean(const Attributes& attributes, std::string_view name) { return get<bool>(attributes, name); }
const std::string& text(const Attributes& attributes, std::string_view name) {
  return get<std::string>(attributes, name);
}

const std::vector<std::int64_t>& integers(const Attributes& attributes, std::string_view name) {
  return get<std::vector<std::int64_t>>(attributes, name);
}

namespace detail {

AttributeSpec required_integer(std::string_view name, double min, double max, std::string_view summary) {
  return {name, std::int64_t{}, std::nullopt, {}, min, max, summary};
}
AttributeSpec required_integers(std::string_view name, double min, double max, std::string_view summary) {
  return {name, std::vector<std::int64_t>{}, std::nullopt, {}, min, max, summary};
}
AttributeSpec integer_attribute(std::string_view name, std::int64_t value, double min, double max,
                                std::string_view summary) {
  return {name, std::int64_t{}, value, {}, min, max, summary};
}
AttributeSpec integer_like(std::string_view name, std::string_view other, double min, double max,
                           std::string_view summary) {
  return {name, std::int64_t{}, std::nullopt, other, min, max, summary};
}
AttributeSpec number_attribute(std::string_view name, double value, double min, double max,
                               std::string_view summary) {
  return {name, double{}, value, {}, min, max, summary};
}
AttributeSpec probability_attribute(std::string_view name, double value, std::string_view summary) {
  AttributeSpec attribute = number_attribute(name, value, 0, 0.99, summary);
  attribute.probability = true;
  return attribute;
}
AttributeSpec flag_attribute(std::string_view name, bool value, std::string_view summary) {
  return {name, bool{}, value, {}, 0, 1, summary};
}

AttributeSpec words_attribute(std::string_view name, std::vector<std::string_view> choices,
                              std::string_view summary) {
  const std::string first(choices.front());
  return {name, std::string{}, first, {}, 0, 0, summary, std::move(choices)};
}
AttributeSpec silent(AttributeSpec attribute) {
  attribute.silent = true;
  return attribute;
}

AttributeSpec std_attribute() {
  return silent(
      number_attribute("std", 0, 0, 100, "initial weights are N(0, std), biases 0; 0: PyTorch's default"));
}

void refuse_input(std::size_t position, const TensorType& found, const std::string& meaning) {
  throw Error(ErrorKind::data, "input " + std::to_string(position) + " is " +
                                   std::string(name_of(found.dtype)) + " " + to_text(found.shape) +
                                   ", but needs " + meaning);
}

void require_dimensions(std::span<const TensorType> inputs, std::size_t position, const OpInput& needed) {
  const std::size_t dimensions = inputs[position].shape.size();
  if (dimensions < needed.least || dimensions > needed.most)
    refuse_input(position, inputs[position], std::string(needed.meaning));
}

void require_floating(std::span<const TensorType> inputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!is_floating(inputs[i].dtype)) refuse_input(i, inputs[i], "a floating type");
  }
}

std::size_t dimension(const Attributes& attributes, std::span<const TensorType> inputs) {
  const auto dim = static_cast<std::size_t>(integer(attributes, "dim"));
  if (dim >= inputs[0].shape.size()) {
    refuse_input(0, inputs[0],
                 "a dimension " + std::to_string(dim) + " (attribute dim, counted without the batch)");
  }
  return dim;
}

AttributeSpec dim_attribute() {
  return integer_attribute("dim", 0, 0, 15, "dimension, counted without the batch");
}

double elements(const TensorType& type) { return static_cast<double>(element_count(type.shape)); }

std::int64_t positions(std::int64_t size, const Window& window) {
  const std::int64_t reach = window.dilation * (window.kernel - 1) + 1;
  const std::int64_t padded = size + 2 * window.padding;
  if (reach > padded) {
    throw Error(ErrorKind::data, "kernel_size " + std::to_string(window.kernel) + " reaches over " +
                                     std::to_string(reach) + " pixels, but the padded input has " +
                                     std::to_string(padded) +
                                     "; use a smaller kernel, more padding or a larger image");
  }
  const std::int64_t whole = (padded - reach) / window.stride + 1;
  const bool rest = (padded - reach) % window.stride != 0;
  const bool starts_inside = whole * window.stride < size + window.padding;
  return whole + (window.ceil && rest && starts_inside ? 1 : 0);
}

}  // namespace detail
}  // namespace pp
