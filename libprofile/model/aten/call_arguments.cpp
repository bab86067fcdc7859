#include "libprofile/model/aten/call_arguments.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "libprofile/core/error.h"

namespace pp::model::aten {
namespace {

using c10::IValue;
using c10::TypeKind;

[[noreturn]] void refuse(const c10::Argument& argument, const std::string& message) {
  throw Error(ErrorKind::data,
              "argument \"" + argument.name() + "\" (" + argument.real_type()->str() + "): " + message);
}

template <class T>
const T* as(const AtenValue& value) {
  return std::get_if<T>(&value.value);
}

std::optional<double> real(const AtenValue& value) {
  if (const auto* number = as<double>(value)) return *number;
  if (const auto* whole = as<std::int64_t>(value)) return static_cast<double>(*whole);
  if (const auto* special = as<SpecialNumber>(value)) return pp::value_of(*special);
  return std::nullopt;
}

std::optional<at::Scalar> scalar(const AtenValue& value) {
  if (const auto* whole = as<std::int64_t>(value)) return at::Scalar(*whole);
  if (const auto* flag = as<bool>(value)) return at::Scalar(*flag);
  if (const auto number = real(value)) return at::Scalar(*number);
  return std::nullopt;
}

/// A number where a tensor stands: it has no say in the type of the result.
at::Tensor wrapped(const at::Scalar& number) {
  at::Tensor tensor = c10::scalar_to_tensor(number);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

bool is_size(const c10::Type& type) {
  return type.kind() == TypeKind::IntType || type.kind() == TypeKind::SymIntType;
}

const at::Tensor& tensor_of(const TensorArgument& argument, const Frame& frame) {
  const auto index = static_cast<std::size_t>(argument.index);
  switch (argument.kind) {
    case TensorArgument::Kind::input: return frame.inputs[index];
    case TensorArgument::Kind::parameter: return frame.parameters[index];
    case TensorArgument::Kind::buffer: return frame.buffers[index];
    case TensorArgument::Kind::constant: break;
  }
  return frame.constants[index];
}

/// What kernels divide by, some without a look.
void check_divisor(std::int64_t value, const c10::Argument& argument) {
  constexpr std::array kDivisors{"groups",   "num_groups",     "stride",
                                 "dilation", "upscale_factor", "downscale_factor"};
  if (value < 1 && std::ranges::find(kDivisors, argument.name()) != kDivisors.end())
    refuse(argument, "must be 1 or more, not " + std::to_string(value));
}

/// Kernels negate what counts backwards; matrix_power of the smallest number never returns.
void check_magnitude(std::int64_t value, const c10::Argument& argument) {
  constexpr auto kSmallest = std::numeric_limits<std::int64_t>::min();
  if (value == kSmallest) refuse(argument, "must be more than " + std::to_string(kSmallest));
}

/// Not every kernel looks how long the list is that says so much of each side of an image. A list declared with
/// one element may have more, of dimensions to reduce also none.
void check_length(std::size_t length, const c10::Argument& argument) {
  if (!argument.N() || length == 1 || length == static_cast<std::size_t>(*argument.N())) return;
  if (*argument.N() == 1 && (length > 1 || argument.name() == "dim")) return;
  const auto& usual = argument.default_value();
  if (usual && usual->isList() && usual->toListRef().size() == length) return;
  refuse(argument, "must be a list of " + std::to_string(*argument.N()));
}

template <class T, class Make>
c10::List<T> list_from(std::size_t count, const Make& make) {
  c10::List<T> list;
  list.reserve(count);
  for (std::size_t i = 0; i < count; ++i) list.push_back(make(i));
  return list;
}

}  // namespace

Arguments::Arguments(const AtenCall& call, const c10::FunctionSchema& schema) {
  for (const auto& [name, value] : call.arguments) {
    if (schema.argumentIndexWithName(name)) continue;
    std::string names;
    for (const c10::Argument& argument : schema.arguments())
      names.append(names.empty() ? "" : ", ").append(argument.name());
    throw Error(ErrorKind::data, "there is no argument \"" + name + "\"; use " + names);
  }
  for (const c10::Argument& argument : schema.arguments()) {
    const auto given = call.arguments.find(argument.name());
    c10::TypePtr type = argument.real_type();
    const bool optional = type->kind() == TypeKind::OptionalType;
    if (optional) type = type->expectRef<c10::OptionalType>().getElementType();
    if (type->kind() == TypeKind::DeviceObjType) {
      if (given != call.arguments.end()) refuse(argument, "is the device of the run; leave it out");
      slots_.emplace_back(Device{});
    } else if (given == call.arguments.end()) {
      if (!argument.default_value()) refuse(argument, "is missing and has no default");
      slots_.emplace_back(*argument.default_value());
    } else if (as<std::monostate>(given->second) != nullptr) {
      if (!optional) refuse(argument, "cannot be null");
      slots_.emplace_back(IValue());
    } else {
      slots_.push_back(bind(given->second, type, argument));
    }
  }
}

void Arguments::note(std::int64_t value, const c10::Argument& argument) {
  check_magnitude(value, argument);
  if (argument.name() != "ignore_index") largest_integer_ = std::max(largest_integer_, value);
}

Arguments::Slot Arguments::bind_integer(const AtenValue& value, const c10::Argument& argument) {
  if (const auto* batch = as<BatchInteger>(value)) {
    note(batch->per_sample, argument);
    note(batch->fixed, argument);
    return *batch;
  }
  const auto* whole = as<std::int64_t>(value);
  if (whole == nullptr) refuse(argument, "must be an integer");
  check_divisor(*whole, argument);
  note(*whole, argument);
  return IValue(*whole);
}

Arguments::Slot Arguments::bind(const AtenValue& value, const c10::TypePtr& type,
                                const c10::Argument& argument) {
  switch (type->kind()) {
    case TypeKind::TensorType:
      if (const auto* tensor = as<TensorArgument>(value)) return *tensor;
      if (const auto number = scalar(value)) return IValue(wrapped(*number));
      refuse(argument, "must be a tensor");
    case TypeKind::IntType:
    case TypeKind::SymIntType: return bind_integer(value, argument);
    case TypeKind::FloatType:
      if (const auto number = real(value)) return IValue(*number);
      refuse(argument, "must be a number");
    case TypeKind::NumberType:
      if (const auto* batch = as<BatchInteger>(value)) return *batch;
      if (const auto number = scalar(value)) return IValue(*number);
      refuse(argument, "must be a number");
    case TypeKind::BoolType:
      if (const auto* flag = as<bool>(value)) return IValue(*flag);
      refuse(argument, "must be true or false");
    case TypeKind::StringType:
      if (const auto* text = as<std::string>(value)) return IValue(*text);
      refuse(argument, "must be a string");
    case TypeKind::ScalarTypeType:
      if (const auto* dtype = as<DType>(value)) {
        if (is_floating(*dtype)) return FloatType{};
        return IValue(static_cast<std::int64_t>(scalar_type(*dtype)));
      }
      refuse(argument, "must be a type, {\"dtype\": \"float32\"}");
    case TypeKind::ListType:
      return bind_list(value, type->expectRef<c10::ListType>().getElementType(), argument);
    default: refuse(argument, "a model does not say this; leave it out");
  }
}

Arguments::Slot Arguments::bind_list(const AtenValue& value, const c10::TypePtr& element,
                                     const c10::Argument& argument) {
  const bool optional = element->kind() == TypeKind::OptionalType;
  const c10::TypePtr type = optional ? element->expectRef<c10::OptionalType>().getElementType() : element;
  const bool known =
      type->kind() == TypeKind::TensorType ||
      (!optional && (is_size(*type) || type->kind() == TypeKind::FloatType ||
                     type->kind() == TypeKind::BoolType || type->kind() == TypeKind::NumberType));
  if (!known) refuse(argument, "a model has no lists of this type; leave it out");
  List list{element, {}};
  const auto* values = as<AtenList>(value);
  if (values == nullptr && argument.N() && is_size(*type)) {  // one number for all
    list.slots.assign(static_cast<std::size_t>(*argument.N()), bind_integer(value, argument));
    return list;
  }
  if (values == nullptr) refuse(argument, "must be a list");
  check_length(values->size(), argument);
  for (const AtenValue& member : *values) {
    if (as<std::monostate>(member) == nullptr) {
      list.slots.push_back(bind(member, type, argument));
    } else if (optional) {
      list.slots.emplace_back(IValue());
    } else {
      refuse(argument, "null stands in its list");
    }
  }
  if (argument.N() && list.slots.size() == 1)
    list.slots.resize(static_cast<std::size_t>(*argument.N()), list.slots[0]);
  return list;
}

IValue Arguments::list_of(const List& list, const Frame& frame) {
  const auto at = [&](std::size_t i) { return value_of(list.slots[i], frame); };
  const std::size_t count = list.slots.size();
  switch (list.element->kind()) {
    case TypeKind::TensorType:
      return list_from<at::Tensor>(count, [&](std::size_t i) { return at(i).toTensor(); });
    case TypeKind::OptionalType:
      return list_from<std::optional<at::Tensor>>(count, [&](std::size_t i) {
        const IValue value = at(i);
        return value.isNone() ? std::optional<at::Tensor>() : std::optional(value.toTensor());
      });
    case TypeKind::FloatType: return list_from<double>(count, [&](std::size_t i) { return at(i).toDouble(); });
    case TypeKind::BoolType: return list_from<bool>(count, [&](std::size_t i) { return at(i).toBool(); });
    case TypeKind::NumberType: {
      c10::impl::GenericList numbers(c10::NumberType::get());
      for (std::size_t i = 0; i < count; ++i) numbers.push_back(at(i));
      return numbers;
    }
    default: return list_from<std::int64_t>(count, [&](std::size_t i) { return at(i).toInt(); });
  }
}

IValue Arguments::value_of(const Slot& slot, const Frame& frame) {
  struct Value {
    const Frame& frame;
    IValue operator()(const IValue& value) const { return value; }
    IValue operator()(const TensorArgument& argument) const { return tensor_of(argument, frame); }
    IValue operator()(const BatchInteger& batch) const {
      return batch.per_sample * frame.samples + batch.fixed;
    }
    IValue operator()(const Device&) const { return frame.device; }
    IValue operator()(const FloatType&) const { return static_cast<std::int64_t>(frame.dtype); }
    IValue operator()(const List& list) const { return list_of(list, frame); }
  };
  return std::visit(Value{frame}, slot);
}

void Arguments::push(const Frame& frame, torch::jit::Stack& stack) const {
  for (const Slot& slot : slots_) stack.push_back(value_of(slot, frame));
}

}  // namespace pp::model::aten
