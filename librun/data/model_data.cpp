#include "librun/data/model_data.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/core/model/counted_labels.h"
#include "libprofile/core/model/model_traits.h"
#include "libprofile/core/ops/op_table.h"

namespace pp::run {

namespace {

[[noreturn]] void refuse_records(const std::string& source, const std::string& message) {
  throw Error(ErrorKind::data, source + ": " + message);
}

/// An input or target of the model, and what the data have for it.
struct Pair {
  const DataTensor& tensor;
  const Records& records;
  std::string_view role;                  ///< `input` or `target`
  IndexRange range;                       ///< of integers
  std::optional<std::int64_t> uncounted;  ///< would be no label, but micro-batches would not add up
  std::string name() const { return "the model's " + std::string(role) + " \"" + tensor.name + "\""; }
};

Shape without_ones(const Shape& shape) {
  Shape rest;
  std::copy_if(shape.begin(), shape.end(), std::back_inserter(rest),
               [](std::int64_t size) { return size != 1; });
  return rest;
}

bool fits(const Shape& found, const Shape& expected) {
  if (without_ones(found) == without_ones(expected)) return true;
  return expected.size() == 1 && element_count(found) == expected.front();
}

void check_type(const Pair& pair) {
  const Records& records = pair.records;
  const TensorType& wanted = pair.tensor.type;
  if (!fits(records.shape, wanted.shape)) {
    refuse_records(records.source, "samples have the shape " + to_text(records.shape) + ", " + pair.name() +
                                       " is " + to_text(wanted.shape) +
                                       "; give data of that shape or plan a model for this data");
  }
  if (!is_integer(records.type) && !is_floating(wanted.dtype)) {
    refuse_records(records.source, "elements are " + std::string(name_of(records.type)) + ", " + pair.name() +
                                       " is " + std::string(name_of(wanted.dtype)) + "; give integers");
  }
}

void check_range(const Pair& pair) {
  if (pair.range.limit == 0 || is_floating(pair.tensor.type.dtype)) return;
  const auto found = find_out_of_range(pair.records, pair.range.limit, pair.range.ignored);
  if (!found) return;
  const auto& [sample, element, value] = *found;
  const std::string ignored =
      value < 0 && pair.range.ignored ? ", and " + std::to_string(*pair.range.ignored) + " for no label" : "";
  refuse_records(place_of(pair.records, sample, element),
                 std::to_string(value) + " in sample " + std::to_string(sample) + ", " + pair.name() +
                     (value == pair.uncounted
                          ? " is a target of a loss that is no sum of means over the labels that count, so "
                            "micro-batches with such labels do not add up to it; leave these samples out"
                          : " takes 0 to " + std::to_string(pair.range.limit - 1) + ignored +
                                "; correct the data or plan a model with more"));
}

void check_count(const Pair& pair, const Records& first) {
  const std::int64_t found = pair.records.samples(), expected = first.samples();
  if (found == expected) return;
  refuse_records(pair.records.source, std::to_string(found) + " samples, " + std::to_string(expected) + " in " +
                                          first.source + "; give as many of each");
}

Pair pair_of(const ResolvedModel& model, const DataTensor& tensor, const Records& records,
             std::string_view role, const TensorSource& source, const std::optional<CountedLabels>& counted) {
  Pair pair{tensor, records, role, index_range(model, source), {}};
  IndexRange& range = pair.range;
  const auto counts = [&](const LabelMean& mean) { return mean.ignored == range.ignored; };
  if (range.in_mean && (!counted || std::ranges::none_of(counted->means, counts)))
    pair.uncounted = std::exchange(range.ignored, {});
  if (tensor.type.dtype == DType::uint8)
    range.limit = range.limit == 0 ? 256 : std::min<std::int64_t>(range.limit, 256);
  return pair;
}

}  // namespace

std::int64_t class_count(const ResolvedModel& model) {
  const OpRow* row = model.graph.loss ? find_loss(model.graph.loss->op) : nullptr;
  if (row == nullptr || row->index_limit == nullptr) return 0;
  if (model.loss_sources.front().kind != TensorSource::Kind::layer) return 0;
  return row->index_limit(model.graph.loss->attributes, model.loss.inputs, model.loss.inputs.size() - 1);
}

void check_table(const ResolvedModel& model, const SampleTable& table) {
  const std::optional<CountedLabels> counted = counted_labels(model);
  std::vector<Pair> pairs;
  const auto add = [&](const std::vector<DataTensor>& tensors, const std::vector<Records>& records,
                       TensorSource::Kind kind, std::string_view role) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (records[i].parts.empty()) continue;  // left out
      pairs.push_back(pair_of(model, tensors[i], records[i], role, {kind, static_cast<int>(i), 0}, counted));
    }
  };
  add(model.graph.inputs, table.inputs, TensorSource::Kind::input, "input");
  add(model.graph.targets, table.targets, TensorSource::Kind::target, "target");
  for (const Pair& pair : pairs) check_type(pair);
  for (const Pair& pair : pairs) check_count(pair, pairs.front().records);
  for (const Pair& pair : pairs) check_range(pair);
}

double input_scale(const DataTensor& input, const Records& records, std::optional<double> wanted) {
  if (!is_floating(input.type.dtype)) return 1;
  if (wanted) return *wanted;
  if (!is_integer(records.type)) return 1;
  if (records.type == ElementType::int64) {
    refuse_records(records.source,
                   "64-bit integers for the model's floating input \"" + input.name +
                       "\": what they are divided by is not known; give --scale, 1 to take them as they are");
  }
  return 1 / static_cast<double>(maximum(records.type));
}

}  // namespace pp::run
