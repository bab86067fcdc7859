#include "librun/checkpoint/model_tensors.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/core/text.h"

namespace pp::run {

namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& message) {
  throw Error(ErrorKind::data, "tensor \"" + name + "\": " + message);
}

}  // namespace

std::string slot_name(const std::string& parameter, const std::string& slot) { return parameter + "." + slot; }

std::string rows_name(const std::string& whole, const RowRange& rows) {
  return whole + "[" + std::to_string(rows.first) + ":" + std::to_string(rows.end) + "]";
}

std::optional<RowsOf> parse_rows_name(std::string_view name) {
  const std::size_t open = name.rfind('['), colon = name.rfind(':');
  if (!name.ends_with(']') || open == std::string_view::npos || colon == std::string_view::npos || colon < open)
    return std::nullopt;
  RowsOf found{std::string(name.substr(0, open)), {}};
  const auto read = [&](std::size_t begin, std::size_t end, std::int64_t& value) {
    const auto [stop, fault] = std::from_chars(name.data() + begin, name.data() + end, value);
    return fault == std::errc() && stop == name.data() + end;
  };
  if (!read(open + 1, colon, found.rows.first) || !read(colon + 1, name.size() - 1, found.rows.end))
    return std::nullopt;
  return found;
}

std::vector<ModelTensor> model_tensors(const ResolvedModel& model, DType dtype) {
  std::vector<ModelTensor> tensors;
  for (int layer = 0; layer < model.layer_count(); ++layer) {
    const ResolvedLayer& resolved = model.layers[static_cast<std::size_t>(layer)];
    for (std::size_t i = 0; resolved.weights_layer == layer && i < resolved.parameters.size(); ++i)
      tensors.push_back(
          {parameter_name(model, layer, i), {resolved.parameters[i].shape, dtype}, resolved.trained[i]});
    for (std::size_t i = 0; i < resolved.buffers.size(); ++i) {
      const ParameterSpec& buffer = resolved.buffers[i];
      const DType type = is_floating(buffer.dtype) ? dtype : buffer.dtype;
      tensors.push_back({buffer_name(model, layer, i), {buffer.shape, type}, false});
    }
  }
  return tensors;
}

std::string_view same_as(std::string_view what) {
  constexpr std::string_view kSame = "same as ";
  return what.starts_with(kSame) ? what.substr(kSame.size()) : std::string_view();
}

Metadata further_state(const SafetensorsFile& file) {
  Metadata further = file.metadata();
  std::erase_if(further, [&](const auto& entry) {
    const bool kept = entry.second == "kept" && file.find(entry.first) != nullptr;
    return !kept && entry.second != "steps" && same_as(entry.second).empty();
  });
  return further;
}

std::vector<std::string> missing_weights(const SafetensorsFile& file, std::span<const ModelTensor> wanted,
                                         bool ignore_unknown) {
  std::vector<std::string> missing;
  for (const ModelTensor& tensor : wanted) {
    const SafetensorsFile::Entry* const found = file.find(tensor.name);
    if (!found) {
      missing.push_back(tensor.name);
      continue;
    }
    if (found->type.shape != tensor.type.shape)
      refuse(tensor.name, "has the shape " + to_text(found->type.shape) + ", the model's has " +
                              to_text(tensor.type.shape) + "; give the weights of this model");
    if (is_floating(tensor.type.dtype) && !is_floating(found->type.dtype))
      refuse(tensor.name, "is " + std::string(name_of(found->type.dtype)) + ", weights are floating numbers");
    if (!is_floating(tensor.type.dtype) && found->type.dtype != tensor.type.dtype)
      refuse(tensor.name, "is " + std::string(name_of(found->type.dtype)) + ", the model's is " +
                              std::string(name_of(tensor.type.dtype)));
  }
  for (const SafetensorsFile::Entry& tensor : file.tensors()) {
    if (tensor.name.ends_with("_blocks") && tensor.type.dtype == DType::uint8)  // as gpt-oss is published
      refuse(tensor.name,
             "is a quantized weight, which is not read; load the model with transformers in "
             "bfloat16, and give what its save_pretrained writes");
  }
  if (ignore_unknown) return missing;
  const Metadata further = further_state(file);
  std::set<std::string_view> names;
  for (const ModelTensor& tensor : wanted) names.insert(tensor.name);
  for (const SafetensorsFile::Entry& tensor : file.tensors()) {
    if (!further.contains(tensor.name) && !names.contains(tensor.name))
      refuse(tensor.name, "is not in the model; leave such tensors out with --ignore-unknown-weights");
  }
  return missing;
}

namespace {

using Entry = SafetensorsFile::Entry;
/// Entries that have rows of one tensor, from the first row on.
using RowEntries = std::vector<std::pair<RowRange, const Entry*>>;

std::map<std::string, RowEntries> row_entries(const SafetensorsFile& file) {
  std::map<std::string, RowEntries> all;
  for (const Entry& entry : file.tensors()) {
    if (const std::optional<RowsOf> found = parse_rows_name(entry.name))
      all[found->whole].emplace_back(found->rows, &entry);
  }
  for (auto& [name, entries] : all)
    std::ranges::sort(entries, {}, [](const auto& entry) { return entry.first.first; });
  return all;
}

void check_state(const Entry& entry, const TensorType& wanted) {
  if (entry.type == wanted) return;
  refuse(entry.name, "is " + std::string(name_of(entry.type.dtype)) + " " + to_text(entry.type.shape) +
                         ", the optimizer's state of " + std::string(name_of(wanted.dtype)) + " " +
                         to_text(wanted.shape) + " is expected");
}

void check_rows(const std::string& name, const RowEntries& entries, const TensorType& whole) {
  std::int64_t next = 0;
  const std::int64_t rows = whole.shape.empty() ? 1 : whole.shape.front();
  const auto refuse_from = [&](std::int64_t first) {
    refuse(name, "row " + std::to_string(first) + " of " + std::to_string(rows) +
                     " is missing or there twice; use a whole checkpoint");
  };
  for (const auto& [range, entry] : entries) {
    if (range.first != next || range.end <= range.first || range.end > rows) refuse_from(next);
    TensorType part = whole;
    part.shape.front() = range.end - range.first;
    check_state(*entry, part);
    next = range.end;
  }
  if (next != rows) refuse_from(next);
}

}  // namespace

bool has_optimizer_state(const SafetensorsFile& file, std::span<const ModelTensor> wanted,
                         std::span<const std::string> slots) {
  const std::map<std::string, RowEntries> rows = row_entries(file);
  std::vector<std::string> missing;
  std::size_t found = 0;
  for (const ModelTensor& tensor : wanted) {
    for (std::size_t i = 0; tensor.trained && i < slots.size(); ++i) {
      const std::string name = slot_name(tensor.name, slots[i]);
      const SafetensorsFile::Entry* const state = file.find(name);
      const auto in_rows = rows.find(name);
      if (!state && in_rows == rows.end()) {
        missing.push_back(name);
        continue;
      }
      ++found;
      const bool single = slots[i] == "step";
      const TensorType type{single ? Shape{} : tensor.type.shape, single ? DType::float32 : tensor.type.dtype};
      if (state) {
        check_state(*state, type);
      } else {
        check_rows(name, in_rows->second, type);
      }
    }
  }
  if (found > 0 && !missing.empty())
    refuse(missing.front(),
           "is missing (" + counted(std::ssize(missing), "tensor") + " in all); use a whole checkpoint");
  return found > 0;
}

}  // namespace pp::run
