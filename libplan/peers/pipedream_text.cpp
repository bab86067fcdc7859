#include "libplan/peers/pipedream_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "libplan/cost/graph.h"
#include "libplan/peers/foreign_graph.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

struct TextNode {
  std::string id;
  std::string description;
  double forward_ms = 0;
  double backward_ms = 0;
  std::int64_t activation = 0;
  std::int64_t parameters = 0;
  std::set<int> before, after;  ///< by line order
  bool dropped = false;
};

[[noreturn]] void fail(int line, const std::string& message) {
  throw Error(ErrorKind::data, "line " + std::to_string(line) + ": " + message);
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
    text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; (at = text.find(separator)) != std::string_view::npos;) {
    parts.push_back(trim(text.substr(0, at)));
    text.remove_prefix(at + separator.size());
  }
  parts.push_back(trim(text));
  return parts;
}

double parse_number(std::string_view text, std::string_view key, int line) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value) || value < 0) {
    fail(line, std::string(key) + " = \"" + std::string(text) + "\" is not a finite number of at least 0");
  }
  return value;
}

/// The text behind `key=`, up to the next comma outside of brackets.
std::string_view value_of(std::string_view numbers, std::string_view key, int line) {
  const std::size_t at = numbers.find(std::string(key) + "=");
  if (at == std::string_view::npos) fail(line, "the node has no " + std::string(key));
  const std::string_view value = numbers.substr(at + key.size() + 1);
  const std::size_t end = value.starts_with('[') ? value.find(']') : value.find(',');
  return trim(value.substr(0, value.starts_with('[') && end != std::string_view::npos ? end + 1 : end));
}

double number_of(std::string_view numbers, std::string_view key, int line) {
  return parse_number(value_of(numbers, key, line), key, line);
}

std::int64_t bytes_of(std::string_view numbers, std::string_view key, int line) {
  std::string_view value = value_of(numbers, key, line);
  double sum = 0;
  if (value.starts_with('[') && value.ends_with(']')) {
    value = value.substr(1, value.size() - 2);
    for (const std::string_view part : split(value, ";")) sum += parse_number(part, key, line);
  } else {
    sum = parse_number(value, key, line);
  }
  if (sum > double{kMostInteger})
    fail(line,
         std::string(key) + " is more than " + std::to_string(kMostInteger) + " bytes; no profile has more");
  return std::llround(sum);
}

LayerProfile layer_profile(const TextNode& node, int batch_size) {
  LayerPoint point;
  point.micro_batch_size = batch_size;
  point.forward = imported_time(Seconds(node.forward_ms / 1e3));
  point.backward = imported_time(Seconds(node.backward_ms / 1e3));
  point.output = Bytes(node.activation);
  point.saved = Bytes(node.activation);
  return {.name = node.id,
          .parameter_count = node.parameters / size_of(DType::float32),
          .parameters = Bytes(node.parameters),
          .buffers = {},
          .forward_flops_per_sample = {},
          .points = {point}};
}

class TextGraph {
 public:
  void read(std::string_view text) {
    struct Edge {
      std::string from, to;
      int line;
    };
    std::vector<Edge> edges;
    int number = 0;
    for (const std::string_view line : split_lines(text)) {
      ++number;
      if (trim(line).empty()) continue;
      const std::vector<std::string_view> fields = split(line, " -- ");
      if (!line.starts_with('\t') && !line.starts_with(' ')) {
        add_node(fields, number);
      } else if (fields.size() == 2) {
        edges.push_back({std::string(fields[0]), std::string(fields[1]), number});
      } else {
        fail(number, "an edge is an indented line with two node ids, `node3 -- node7`");
      }
    }
    for (const Edge& edge : edges) connect(node(edge.from, edge.line), node(edge.to, edge.line));  // once each
  }

  void drop_inputs_and_items() {
    for (TextNode& one : nodes_) {
      if (one.before.empty() && one.description.starts_with("Input")) drop(one);
    }
    std::vector<int> items;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const TextNode& one = nodes_[i];
      if (!one.dropped && one.after.empty() && one.description.starts_with("__getitem__"))
        items.push_back(static_cast<int>(i));
    }
    for (const int item : items) drop(nodes_[at(item)]);
  }

  /// What is left, in line order.
  std::vector<ForeignLayer> layers(int batch_size) const {
    std::map<int, int> positions;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i].dropped) positions.emplace(static_cast<int>(i), static_cast<int>(positions.size()));
    }
    std::vector<ForeignLayer> layers;
    for (const auto& [index, position] : positions) {
      const TextNode& node = nodes_[at(index)];
      layers.push_back({layer_profile(node, batch_size), {}});
      for (const int producer : node.before) layers.back().producers.insert(positions.at(producer));
    }
    return layers;
  }

 private:
  static std::vector<std::string_view> split_lines(std::string_view text) {
    std::vector<std::string_view> lines;
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      lines.push_back(text.substr(0, end));
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    }
    return lines;
  }

  void add_node(const std::vector<std::string_view>& fields, int line) {
    const auto numbers = std::find_if(fields.begin(), fields.end(), [](std::string_view field) {
      return field.find("forward_compute_time=") != std::string_view::npos;
    });
    if (fields.size() < 2 || numbers == fields.end() || numbers == fields.begin()) {
      fail(line,
           "a node is `id -- description -- forward_compute_time=.., backward_compute_time=.., "
           "activation_size=.., parameter_size=..`");
    }
    TextNode node;
    node.id = std::string(fields.front());
    node.description = numbers - fields.begin() > 1 ? std::string(fields[1]) : std::string();
    node.forward_ms = number_of(*numbers, "forward_compute_time", line);
    node.backward_ms = number_of(*numbers, "backward_compute_time", line);
    node.activation = bytes_of(*numbers, "activation_size", line);
    node.parameters = bytes_of(*numbers, "parameter_size", line);
    if (!by_id_.emplace(node.id, static_cast<int>(nodes_.size())).second)
      fail(line, "node " + node.id + " stands twice");
    nodes_.push_back(std::move(node));
  }

  int node(const std::string& id, int line) const {
    const auto found = by_id_.find(id);
    if (found == by_id_.end()) fail(line, "the edge names node " + id + ", which the file does not have");
    return found->second;
  }

  void connect(int from, int to) {
    nodes_[at(from)].after.insert(to);
    nodes_[at(to)].before.insert(from);
  }

  void drop(TextNode& node) {
    const int index = static_cast<int>(&node - nodes_.data());
    for (const int reader : node.after) nodes_[at(reader)].before.erase(index);
    for (const int source : node.before) nodes_[at(source)].after.erase(index);
    node.after.clear();
    node.before.clear();
    node.dropped = true;
  }

  std::vector<TextNode> nodes_;
  std::map<std::string, int> by_id_;
};

/// Shortest text that reads back equal.
std::string number(double value) { return Json(value).dump(); }

std::string node_line(const Layer& layer, const LayerProfile& profile, int stage) {
  const LayerPoint& point = profile.points.front();
  return layer.name + " -- " + layer.op +
         " -- forward_compute_time=" + number(point.forward.median.count() * 1e3) +
         ", backward_compute_time=" + number(point.backward.median.count() * 1e3) +
         ", activation_size=" + std::to_string(point.output.value) +
         ", parameter_size=" + std::to_string(profile.parameters.value) +
         " -- stage_id=" + std::to_string(stage) + '\n';
}

}  // namespace

Profile import_pipedream(std::string_view text, std::string_view name, int batch_size) {
  if (batch_size < 1) {
    throw Error(ErrorKind::usage, "batch_size = " + std::to_string(batch_size) + "; give at least 1");
  }
  TextGraph graph;
  graph.read(text);
  graph.drop_inputs_and_items();

  Profile profile = foreign_profile(name, "pipedream", graph.layers(batch_size));
  profile.estimated = {"input_gradient_s", "saved_bytes", "batch_size"};
  return profile;
}

int batch_size_in_name(std::string_view name) {
  constexpr std::string_view kMark = "-pbs-";
  const std::size_t at = name.rfind(kMark);
  if (at == std::string_view::npos) return 1;
  const std::string_view rest = name.substr(at + kMark.size());
  int size = 0;
  if (std::from_chars(rest.data(), rest.data() + rest.size(), size).ec == std::errc{} && size >= 1) return size;
  throw Error(ErrorKind::usage,
              "the file's name says -pbs-" + std::string(rest) +
                  ", which begins with no batch size from 1 to 2147483647; give --batch-size");
}

std::string export_pipedream(const Plan& plan, const Profile& profile) {
  if (model_hash(plan.model) != profile.model_hash) {
    throw Error(ErrorKind::data, "the plan is for model " + plan.model.name + ", which is not the profile's, " +
                                     profile.model.name + "; give the profile that the plan was made from");
  }
  std::map<std::string, int> stage_of;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    for (const std::string& layer : plan.stages[s].layers) stage_of[layer] = static_cast<int>(s);
  }
  std::string text;
  for (std::size_t i = 0; i < profile.layers.size(); ++i)
    text += node_line(profile.model.layers[i], profile.layers[i], stage_of.at(profile.layers[i].name));
  for (const GraphLayer& layer : make_graph(profile).layers) {
    for (const int producer : layer.producers) {
      text += '\t';
      text += profile.layers[at(producer)].name + " -- " + layer.name + '\n';
    }
  }
  return text;
}

}  // namespace pp::plan
