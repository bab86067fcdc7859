// fuzz_imported: a model with graphs and calls of LibTorch, changed in a few places, is read, bound and run for
// one small batch, forward and backward. It is refused with a message, or runs, or ends with an error that
// names the layer; never more than that, and within the memory that the document says.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/full.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include <numeric>

#include "libprofile/core/file.h"
#include "libprofile/measure/batch_source.h"
#include "libprofile/model/ops.h"
#include "libprofile/model/segment.h"
#include "libprofile/model/segment_plan.h"
#include "tests/lab/fuzz/campaign.h"
#include "tests/lab/fuzz/mutate_json.h"
#include "tests/lab/fuzz/mutate_text.h"
#include "tests/librun/imported_models.h"

namespace pp::fuzz {
namespace {

enum Category : std::size_t { kUnread, kUnbound, kLarge, kEnded, kRan };
const std::vector<std::string> kCategories{"refused when read", "refused when bound", "too large to run here",
                                           "ended with the layer's error", "ran"};

/// A chain of calls of one input, which other operations can stand for.
constexpr std::string_view kChain = R"({ "format": "pp.model", "version": 1, "name": "chain",
  "inputs": [{ "name": "x", "shape": [6, 8] }],
  "layers": [
    { "name": "fc", "op": "linear", "inputs": ["x"], "attributes": { "out_features": 8 } },
    { "name": "a", "op": "aten", "inputs": ["fc"],
      "call": { "target": "aten::relu", "arguments": { "self": { "input": 0 } }, "outputs": [{ "shape": [6, 8] }] } },
    { "name": "b", "op": "graph", "inputs": ["a"],
      "nodes": [
        { "name": "one", "op": "aten", "inputs": ["a"],
          "call": { "target": "aten::mul.Tensor",
                    "arguments": { "self": { "input": 0 }, "other": { "parameter": "gain" } },
                    "parameters": [{ "name": "gain", "shape": [8] }], "outputs": [{ "shape": [6, 8] }] } },
        { "name": "two", "op": "aten", "inputs": ["one"],
          "call": { "target": "aten::add.Tensor",
                    "arguments": { "self": { "input": 0 }, "other": { "constant": "mask" } },
                    "constants": [{ "name": "mask", "shape": [6, 1], "values": [0, 1, 2, 3, 4, 5] }],
                    "outputs": [{ "shape": [6, 8] }] } } ],
      "outputs": ["two"] },
    { "name": "c", "op": "aten", "inputs": ["b"],
      "call": { "target": "aten::softmax.int", "arguments": { "self": { "input": 0 }, "dim": -1 },
                "outputs": [{ "shape": [6, 8] }] } } ],
  "outputs": ["c"] })";

/// Made before the first case.
struct Corpus {
  std::vector<Json> models{parse_json(test::imported_residual_text()),
                           parse_json(test::imported_attention_text()), parse_json(kChain), parse_json(kChain)};
  std::vector<std::string> targets;

  Corpus() {
    for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
      if (!name.name.starts_with("aten::")) continue;
      targets.push_back(name.name + (name.overload_name.empty() ? "" : "." + name.overload_name));
    }
    std::ranges::sort(targets);
  }
};

/// Whether it takes a moment and a few megabytes, as far as the document says.
bool is_small(const ResolvedModel& model) {
  constexpr double kMost = 2e6;
  double sum = 0;
  const auto add = [&](const Shape& shape, double times) {
    for (const std::int64_t size : shape) times *= static_cast<double>(size);
    sum += times;
  };
  const auto layer = [&](const ResolvedLayer& resolved) {
    for (const TensorType& output : resolved.outputs) add(output.shape, 1);
    for (const ParameterSpec& parameter : resolved.parameters) add(parameter.shape, 1);
    for (const ParameterSpec& buffer : resolved.buffers) add(buffer.shape, 1);
    for (const ResolvedNode& node : resolved.nodes) {
      for (const RowTensor& output : node.outputs)
        add(output.type.shape, static_cast<double>(std::max<std::int64_t>(1, output.rows)));
    }
  };
  for (const DataTensor& input : model.graph.inputs) add(input.type.shape, 64);
  for (const ResolvedLayer& resolved : model.layers) layer(resolved);
  layer(model.loss);
  return sum < kMost;
}

class Imported {
 public:
  Imported(const Corpus& corpus, Case& one)
      : corpus_(corpus), one_(one), random_(one.seed()), json_(random_.pick(corpus.models)) {}

  Result run() {
    const std::size_t changes = 1 + (random_.one_in(2) ? 0 : random_.below(3));
    for (std::size_t i = 0; i < changes; ++i) change();
    std::string text = json_.dump(-1, ' ', false, Json::error_handler_t::ignore);
    if (random_.one_in(20)) mutate_bytes(random_, text);
    write_file(one_.folder() / "model.json", text);
    ModelGraph graph;
    one_.doing("read");
    if (!takes([&] { graph = parse_model(text); })) return {kUnread, finding_};
    one_.doing("read what was written");
    if (!takes([&] { same_when_written(graph); }) && finding_.empty()) finding_ = "what was written is refused";
    if (!finding_.empty()) return {kUnread, finding_};
    const ResolvedModel model = resolve(graph);
    one_.doing("bind");
    if (!takes([&] { model::check_bindable(model); })) return {kUnbound, finding_};
    if (!is_small(model)) return {kLarge, ""};
    one_.doing("run");
    return {runs(model) ? kRan : kEnded, finding_};
  }

 private:
  /// False when it refuses as it should.
  template <class Use>
  bool takes(Use use) {
    try {
      use();
      return true;
    } catch (const Error& error) {
      const bool data = error.kind() == ErrorKind::data || error.kind() == ErrorKind::usage;
      if (!data) finding_ = std::string("internal: ") + error.what();
      if (error.message().empty()) finding_ = "refused without words";
      return false;
    }
  }

  void same_when_written(const ModelGraph& graph) {
    const std::string written = dump_json(to_json(graph));
    if (!(parse_model(written) == graph)) finding_ = "what was written is read as another value";
    if (dump_json(to_json(parse_model(written))) != written)
      finding_ = "what was read is written as another text";
  }

  bool runs(const ResolvedModel& model) {
    try {
      std::vector<int> layers(model.layers.size());
      std::iota(layers.begin(), layers.end(), 0);
      const model::Segment segment(model, layers, model.graph.loss.has_value());
      const auto weights = segment.initial_weights(1, DType::float32);
      const auto buffers = segment.initial_buffers(DType::float32);
      const std::vector<at::Tensor> batch =
          profile::random_batch(model, segment.inputs(), 2, DType::float32, 1);
      at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(1);
      segment.forward(
          weights, batch,
          {.mode = model::Mode::evaluation, .key = {}, .generator = &generator, .buffers = buffers});
      model::Pass pass =
          segment.forward(weights, batch, {.key = {}, .generator = &generator, .buffers = buffers});
      std::vector<model::Tensors> arriving(segment.outputs().size());
      for (std::size_t k = 0; k < arriving.size() && !segment.has_loss(); ++k) {
        if (pass.outputs[k].is_floating_point()) arriving[k].push_back(pass.outputs[k]);
      }
      model::Gradients gradients = segment.empty_gradients();
      segment.backward(pass, arriving, 1.0, gradients);
      return true;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::internal) finding_ = std::string("internal: ") + error.what();
      return false;
    }
  }

  void change() {
    switch (random_.below(16)) {
      case 0: return mutate_json(random_, json_);
      case 1:
      case 2: return mutate_json_gently(random_, json_);
      case 3: return change_inputs();
      case 4: return change_name();
      default: return change_call();
    }
  }

  /// A layer, or one of the nodes of a graph.
  Json* some_node() {
    if (!json_.is_object() || !json_["layers"].is_array() || json_["layers"].empty()) return nullptr;
    Json& layer = random_.pick(json_["layers"]);
    if (!layer.is_object()) return nullptr;
    if (!layer.contains("nodes") || !layer["nodes"].is_array() || layer["nodes"].empty()) return &layer;
    Json& node = random_.pick(layer["nodes"]);
    return node.is_object() ? &node : nullptr;
  }

  void change_inputs() {
    Json *to = some_node(), *from = some_node();
    if (to == nullptr || from == nullptr || !(*to)["inputs"].is_array() || !(*from)["name"].is_string()) return;
    const std::string name = (*from)["name"].get<std::string>();  // perhaps a later one, or itself
    if ((*to)["inputs"].empty() || random_.one_in(4)) {
      (*to)["inputs"].push_back(name);
    } else {
      random_.pick((*to)["inputs"]) = random_.one_in(4) ? name + ":1" : name;
    }
  }

  void change_name() {
    static const std::vector<std::string> kNames{"../../etc/passwd", "/", "", "a..b", ".", "x:1", "wte", "a/b"};
    if (Json* node = some_node()) (*node)[random_.one_in(2) ? "name" : "scope"] = random_.pick(kNames);
  }

  Json value() {
    static const std::vector<std::string> kValues{"null",
                                                  "true",
                                                  "0",
                                                  "1",
                                                  "-1",
                                                  "2",
                                                  "-5",
                                                  "63",
                                                  "1000000",
                                                  "9223372036854775807",
                                                  "-9223372036854775808",
                                                  "0.5",
                                                  "1e300",
                                                  "\"same\"",
                                                  "\"\"",
                                                  "[]",
                                                  "[1]",
                                                  "[-1, 6]",
                                                  "[6, 8]",
                                                  "[0, 0]",
                                                  "[1, 1, 1, 1, 1, 1, 1, 1]",
                                                  "[[1], [2]]",
                                                  "[4294967296, 4294967296]",
                                                  "[1000000, 1000000]",
                                                  R"({ "input": 0 })",
                                                  R"({ "input": 1 })",
                                                  R"([{ "input": 0 }])",
                                                  R"([{ "input": 0 }, { "input": 1 }])",
                                                  R"([null, { "input": 0 }])",
                                                  R"({ "batch": [1, 0] })",
                                                  R"({ "batch": [1099511627776, 5] })",
                                                  R"([{ "batch": [1, 0] }, -1])",
                                                  R"({ "dtype": "int64" })",
                                                  R"({ "dtype": "bool" })",
                                                  R"({ "number": "nan" })",
                                                  R"({ "number": "-inf" })",
                                                  R"({ "parameter": "gain" })",
                                                  R"({ "constant": "mask" })",
                                                  R"({ "buffer": "index" })"};
    return Json::parse(random_.pick(kValues));
  }

  void change_call() {
    for (int attempt = 0; attempt < 20; ++attempt) {
      Json* node = some_node();
      if (node == nullptr || !node->contains("call") || !(*node)["call"].is_object()) continue;
      Json& call = (*node)["call"];
      switch (random_.below(12)) {
        case 0: return change_sizes(call);
        case 1: return change_values(call);
        case 2: call[random_.one_in(2) ? "outputs" : "arguments"] = value(); return;
        case 3:
        case 4: return change_argument(call);
        default: return retarget(call);
      }
    }
  }

  /// Another operation, with arguments that mostly have its names and types.
  void retarget(Json& call) {
    const std::string& target = random_.pick(corpus_.targets);
    call["target"] = target;
    if (random_.one_in(3)) return;
    const std::size_t dot = target.find('.');
    const auto found = c10::Dispatcher::singleton().findSchema(
        {target.substr(0, dot), dot == std::string::npos ? "" : target.substr(dot + 1)});
    if (!found) return;
    Json arguments = Json::object();
    for (const c10::Argument& argument : found->schema().arguments()) {
      if (argument.default_value() && !random_.one_in(4)) continue;
      arguments[argument.name()] = random_.one_in(12) ? value() : fitting(argument.real_type()->str());
    }
    if (arguments.dump().find("parameter") == std::string::npos) call.erase("parameters");
    if (arguments.dump().find("constant") == std::string::npos) call.erase("constants");
    call["arguments"] = std::move(arguments);
    while (call["outputs"].is_array() && call["outputs"].size() < found->schema().returns().size())
      call["outputs"].push_back(Json::parse(R"({ "shape": [6, 8] })"));
  }

  Json fitting(std::string type) {
    if (type.ends_with("?")) type.pop_back();
    const bool list = type.ends_with("[]");
    if (list) type.resize(type.size() - 2);
    if (type.ends_with("?")) type.pop_back();
    const auto one = [&]() -> Json {
      if (type == "Tensor") return {{"input", random_.one_in(20) ? 1 : 0}};
      if (type == "bool") return random_.one_in(2);
      if (type == "float" || type == "Scalar") return random_.one_in(4) ? value() : Json(0.5);
      if (type == "str") return "mean";
      return random_.one_in(6) ? value() : Json(random_.integer(-2, 9));
    };
    if (!list) return one();
    Json values = Json::array();
    for (std::size_t k = random_.below(4); k > 0; --k) values.push_back(one());
    return values;
  }

  void change_argument(Json& call) {
    if (!call["arguments"].is_object() || call["arguments"].empty()) return;
    auto at = call["arguments"].begin();
    std::advance(at, static_cast<std::ptrdiff_t>(random_.below(call["arguments"].size())));
    if (at.value().is_array() && !at.value().empty() && random_.one_in(2)) {
      random_.pick(at.value()) = value();
    } else {
      at.value() = value();
    }
  }

  void change_sizes(Json& call) {
    static const std::vector<const char*> kLists{"outputs", "outputs", "parameters", "buffers", "constants"};
    const char* list = random_.pick(kLists);
    if (!call.contains(list) || !call[list].is_array() || call[list].empty()) return;
    Json& tensor = random_.pick(call[list]);
    if (!tensor.is_object()) return;
    static const std::vector<std::string> kShapes{
        "[]",        "[0]",        "[1]",  "[6, 8]", "[1099511627776]", "[1048576, 1048576]",
        "[6, 8, 1]", "[16777216]", "[-1]", "[6, 6]", "[65536]"};
    switch (random_.below(3)) {
      case 0: tensor["shape"] = Json::parse(random_.pick(kShapes)); break;
      case 1: tensor["rows"] = random_.integer(-1, 3); break;
      default: tensor["dtype"] = random_.pick(EnumNames<DType>::table).second;
    }
  }

  void change_values(Json& call) {
    if (!call.contains("constants") || !call["constants"].is_array() || call["constants"].empty())
      return change_argument(call);
    Json& constant = random_.pick(call["constants"]);
    if (!constant.is_object()) return;
    Json& values = constant["values"];
    if (!values.is_array() || values.empty()) return;
    switch (random_.below(3)) {
      case 0: values.erase(random_.below(values.size())); break;
      case 1: values.push_back(value()); break;
      default: random_.pick(values) = value();
    }
  }

  const Corpus& corpus_;
  Case& one_;
  Random random_;
  Json json_;
  std::string finding_;
};

}  // namespace
}  // namespace pp::fuzz

int main(int argc, char** argv) {
  using namespace pp::fuzz;
  at::set_num_threads(1);
  const Corpus corpus;
  Campaign campaign;
  campaign.name = "fuzz_imported";
  campaign.categories = kCategories;
  campaign.run = [&](Case& one) { return Imported(corpus, one).run(); };
  return run_campaign(campaign, argc, argv);
}
