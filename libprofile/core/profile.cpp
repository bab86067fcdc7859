#include "libprofile/core/profile.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "libprofile/core/hash.h"

namespace pp {

namespace {

/// Forward + backward of one layer at one size; nothing when it was not measured.
std::optional<Seconds> pass_time(const LayerProfile& layer, std::int64_t micro_batch_size) {
  for (const LayerPoint& point : layer.points) {
    if (point.micro_batch_size == micro_batch_size && !point.out_of_memory)
      return point.forward.median + point.backward.median;
  }
  return std::nullopt;
}

}  // namespace

LayerTimes without_spread(Seconds forward, Seconds backward, Seconds input_gradient, Seconds weight_gradient) {
  return {{.median = forward}, {.median = backward}, {.median = input_gradient}, {.median = weight_gradient}};
}

void set_parameters(LayerProfile& layer, const ResolvedModel& model, int index, DType dtype) {
  layer.parameters = parameter_bytes(model, index, dtype);
  layer.parameter_count = layer.parameters.value / size_of(dtype);
  const Bytes trained = trained_bytes(model, index, dtype);
  if (trained < layer.parameters) layer.trained = trained;
}

std::optional<double> layer_sum_ratio(const Profile& profile, std::int64_t micro_batch_size) {
  const auto whole =
      std::find_if(profile.whole_model.begin(), profile.whole_model.end(),
                   [&](const WholeModelPoint& point) { return point.micro_batch_size == micro_batch_size; });
  if (whole == profile.whole_model.end()) return std::nullopt;
  const Seconds whole_time = whole->forward.median + whole->backward.median;
  if (whole_time <= Seconds{}) return std::nullopt;

  Seconds sum{};
  for (const LayerProfile& layer : profile.layers) {
    const auto time = pass_time(layer, micro_batch_size);
    if (!time) return std::nullopt;
    sum += *time;
  }
  if (profile.loss) sum += pass_time(*profile.loss, micro_batch_size).value_or(Seconds{});
  return sum / whole_time;
}

std::string profile_hash(const Profile& profile) { return content_hash(dump_json_compact(to_json(profile))); }

namespace {

/// The upper one of an even number. `values` is not empty.
double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

double bytes_of(const UpdatePoint& point) { return static_cast<double>(point.parameters.value); }
double seconds_of(const UpdatePoint& point) { return point.update.median.count(); }

std::vector<double> slopes(const std::vector<UpdatePoint>& points) {
  std::vector<double> slopes;
  for (std::size_t i = 0; i < points.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const double bytes = bytes_of(points[i]) - bytes_of(points[j]);
      if (bytes != 0) slopes.push_back((seconds_of(points[i]) - seconds_of(points[j])) / bytes);
    }
  }
  return slopes;
}

UpdateLine through_origin(const std::vector<UpdatePoint>& points) {
  std::vector<double> ratios;
  for (const UpdatePoint& point : points) ratios.push_back(seconds_of(point) / bytes_of(point));
  return {Seconds(0), median(std::move(ratios))};
}

}  // namespace

UpdateLine update_line(const OptimizerProfile& optimizer) {
  std::vector<UpdatePoint> points = optimizer.parts;
  if (points.empty()) points.push_back({optimizer.parameters, optimizer.update});
  std::erase_if(points, [](const UpdatePoint& point) { return point.parameters.value <= 0; });
  if (points.empty()) return {};
  const std::vector<double> found = slopes(points);
  if (found.empty()) return through_origin(points);
  const double slope = std::max(0.0, median(found));
  std::vector<double> above;
  for (const UpdatePoint& point : points) above.push_back(seconds_of(point) - slope * bytes_of(point));
  const double fixed = median(std::move(above));
  return fixed < 0 ? through_origin(points) : UpdateLine{Seconds(fixed), slope};
}

}  // namespace pp
