// Small models for tests, one line per layer.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/model/model_graph.h"

namespace pp::model::test {

class GraphBuilder {
 public:
  GraphBuilder& input(std::string name, Shape shape, DType dtype = DType::float32) {
    graph_.inputs.push_back({std::move(name), {std::move(shape), dtype}});
    return *this;
  }
  GraphBuilder& target(std::string name, Shape shape, DType dtype = DType::int64) {
    graph_.targets.push_back({std::move(name), {std::move(shape), dtype}});
    return *this;
  }
  GraphBuilder& layer(std::string name, std::string op, std::vector<std::string> inputs,
                      Attributes attributes = {}, std::string weights_of = "") {
    graph_.layers.push_back(
        {std::move(name), std::move(op), std::move(inputs), std::move(attributes), std::move(weights_of)});
    return *this;
  }
  GraphBuilder& output(std::string name) {
    graph_.outputs.push_back(std::move(name));
    return *this;
  }
  GraphBuilder& loss(std::string op, std::string prediction, std::string target) {
    graph_.loss = LossSpec{std::move(op), {std::move(prediction), std::move(target)}, {}};
    return *this;
  }
  ResolvedModel build() {
    graph_.name = "test";
    return resolve(graph_);
  }

 private:
  ModelGraph graph_;
};

inline Attribute whole(std::int64_t value) { return value; }

}  // namespace pp::model::test
