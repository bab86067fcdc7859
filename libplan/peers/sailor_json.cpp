#include "libplan/peers/sailor_json.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "libplan/peers/foreign_graph.h"
#include "libplan/request/shapes.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

constexpr NumberRange kSeconds{.min = 0, .max = 1e6};

struct Times {
  Seconds forward{}, backward{}, update{};
};

std::string model_of(std::string_view entry) { return std::string(entry.substr(0, entry.find('/'))); }

/// The names of the members: `a, b`.
std::string names_of(const Json& object) {
  std::string text;
  for (const auto& [name, value] : object.items()) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string joined(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (const std::int64_t number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return text;
}

/// How many layers some other entry of the model has at most, and which one.
std::pair<std::size_t, std::string> longest(const Json& file, const std::string& model) {
  std::pair<std::size_t, std::string> most{0, ""};
  for (const auto& [entry, sizes] : file.items()) {
    if (model_of(entry) != model || !sizes.is_object()) continue;
    for (const Json& degrees : sizes) {
      if (!degrees.is_object()) continue;
      for (const Json& layers : degrees)
        if (layers.size() > most.first) most = {layers.size(), entry};
    }
  }
  return most;
}

Times read_times(ObjectReader& layers, const std::string& key) {
  const std::vector<double> numbers = layers.numbers(key, kSeconds);
  if (numbers.size() != 3) layers.fail(key, "must be forward, backward and update, three times in seconds");
  return {Seconds(numbers[0]), Seconds(numbers[1]), Seconds(numbers[2])};
}

/// Layers 0, 1, .. up to the largest number.
std::vector<Times> read_layers(const Json& json, const std::string& pointer) {
  ObjectReader layers(json, pointer);
  std::vector<Times> times;
  for (std::size_t l = 0; l < json.size(); ++l) {
    const std::string key = std::to_string(l);
    if (!layers.has(key))
      layers.fail("layer " + key + " is missing; " + std::to_string(json.size()) + " others are there");
    times.push_back(read_times(layers, key));
  }
  return times;
}

/// The layers of `sizes` that are one of Sailor's: before the blocks, each block, behind them.
std::vector<std::pair<std::size_t, std::size_t>> groups_of(const Profile& sizes) {
  std::vector<std::pair<std::size_t, std::size_t>> groups;
  std::string_view last;
  for (std::size_t l = 0; l < sizes.layers.size(); ++l) {
    const std::string_view block = block_of(sizes.layers[l].name);
    if (groups.empty() || block != last) groups.emplace_back(l, l);
    groups.back().second = l + 1;
    last = block;
  }
  return groups;
}

LayerPoint sum_at(const Profile& sizes, std::pair<std::size_t, std::size_t> group, std::int64_t size) {
  const auto point_of = [&](const LayerProfile& layer) -> const LayerPoint& {
    return *std::ranges::find(layer.points, size, &LayerPoint::micro_batch_size);
  };
  LayerPoint point;
  point.micro_batch_size = size;
  const auto add = [&](const LayerPoint& one) {
    point.saved += one.saved;
    point.workspace = std::max(point.workspace, one.workspace);
  };
  for (std::size_t l = group.first; l < group.second; ++l) add(point_of(sizes.layers[l]));
  point.saved_input = std::min(point_of(sizes.layers[group.first]).saved_input, point.saved);
  point.output = point_of(sizes.layers[group.second - 1]).output;
  if (group.second == sizes.layers.size() && sizes.loss) add(point_of(*sizes.loss));
  return point;
}

class Import {
 public:
  Import(const Json& file, std::string_view entry, const Profile& sizes)
      : file_(file), entry_(entry), sizes_(sizes), degree_(std::to_string(sizes.tensor_degree)) {
    if (!file.is_object() || !file.contains(entry_))
      refuse(ErrorKind::usage, "has no entry \"" + entry_ + "\"; it has " + names_of(file));
    for (const std::int64_t size : sizes.micro_batch_sizes) {
      const std::string key = std::to_string(size);
      if (!file[entry_].contains(key) || !file[entry_][key].contains(degree_)) continue;
      const std::string pointer =
          "/" + model_of(entry_) + "~1" + entry_.substr(entry_.find('/') + 1) + "/" + key + "/" + degree_;
      times_.emplace(size, read_layers(file[entry_][key][degree_], pointer));
    }
    if (times_.empty()) refuse_sizes();
    check_count();
  }

  std::vector<ForeignLayer> layers() const {
    std::vector<ForeignLayer> layers;
    const auto groups = groups_of(sizes_);
    for (std::size_t g = 0; g < groups.size(); ++g) {
      ForeignLayer& layer = layers.emplace_back();
      layer.profile.name = "layer" + std::to_string(g);
      for (std::size_t l = groups[g].first; l < groups[g].second; ++l) {
        layer.profile.parameter_count += sizes_.layers[l].parameter_count;
        layer.profile.parameters += sizes_.layers[l].parameters;
        layer.profile.buffers += sizes_.layers[l].buffers;
      }
      for (const auto& [size, times] : times_) {
        LayerPoint& point = layer.profile.points.emplace_back(sum_at(sizes_, groups[g], size));
        point.forward = imported_time(times[g].forward);
        point.backward = imported_time(times[g].backward);
      }
      if (g > 0) layer.producers.insert(static_cast<int>(g) - 1);
    }
    return layers;
  }

  /// Of all layers, at the smallest size; 0: not measured.
  Seconds update() const {
    Seconds sum{};
    for (const Times& layer : times_.begin()->second) sum += layer.update;
    return sum;
  }

 private:
  [[noreturn]] void refuse_sizes() const {
    std::string there;
    for (const auto& [size, degrees] : file_[entry_].items()) {
      if (!degrees.is_object()) continue;
      for (const auto& [degree, layers] : degrees.items())
        there += (there.empty() ? "" : ", ") + size + " at " + degree;
    }
    refuse(ErrorKind::usage, entry_ + " has no micro-batch size of " + joined(sizes_.micro_batch_sizes) +
                                 " at tensor degree " + degree_ + ", which are those of --sizes; it has " +
                                 there);
  }

  void check_count() const {
    const auto [most, where] = longest(file_, model_of(entry_));
    const std::size_t expected = groups_of(sizes_).size();
    for (const auto& [size, times] : times_) {
      const std::string has = entry_ + " has " + std::to_string(times.size()) + " layers at micro-batch size " +
                              std::to_string(size) + ", ";
      if (times.size() < most) {
        refuse(ErrorKind::data, has + where + " has " + std::to_string(most) + ": layers " +
                                    std::to_string(times.size()) + " to " + std::to_string(most - 1) +
                                    " are missing; import an entry that is complete");
      }
      if (times.size() != expected) {
        refuse(ErrorKind::data, has + "--sizes is of " + std::to_string(expected) +
                                    " (before its blocks, each block, behind them); give a profile of the same "
                                    "model");
      }
    }
  }

  const Json& file_;
  std::string entry_;
  const Profile& sizes_;
  std::string degree_;
  std::map<std::int64_t, std::vector<Times>> times_;  ///< by micro-batch size
};

}  // namespace

Profile import_sailor(std::string_view text, std::string_view entry, const Profile& sizes) {
  const Json file = parse_json(text);
  const Import import(file, entry, sizes);
  Profile profile = foreign_profile(model_of(entry), "sailor", import.layers());
  profile.device.name = entry.substr(std::min(entry.size(), entry.find('/') + 1));
  profile.dtype = sizes.dtype;
  profile.tensor_degree = sizes.tensor_degree;
  profile.estimated = {"input_gradient_s", "saved_bytes"};
  if (import.update() > Seconds{}) {
    OptimizerProfile& adam = profile.optimizers.emplace_back();
    adam.name = "adam";
    adam.state_bytes_per_parameter_byte = 2;
    adam.update = imported_time(import.update());
    for (const LayerProfile& layer : profile.layers) adam.parameters += layer.parameters;
  } else {
    profile.estimated.emplace_back("update_s");
  }
  return profile;
}

}  // namespace pp::plan
