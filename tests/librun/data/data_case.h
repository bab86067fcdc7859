// Models that data fit, and a folder of data for one of them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "librun/data/formats.h"
#include "tests/librun/folder.h"
#include "tests/support/doctest.h"

namespace pp::test {

/// One linear of `input` to 3 classes.
inline pp::ModelGraph classifier(pp::Shape input) {
  pp::ModelGraph graph;
  graph.name = "classifier";
  graph.inputs = {{"x", {std::move(input), pp::DType::float32}}};
  graph.targets = {{"y", {{}, pp::DType::int64}}};
  graph.layers = {{"flatten", "flatten", {"x"}, {}, ""},
                  {"head", "linear", {"flatten"}, {{"out_features", std::int64_t{3}}}, ""}};
  graph.outputs = {"head"};
  graph.loss = pp::LossSpec{"cross_entropy", {"head", "y"}, {}};
  return graph;
}

/// Sequences of 4 tokens out of `vocabulary`.
inline pp::ModelGraph language(std::int64_t vocabulary) {
  pp::ModelGraph graph;
  graph.name = "language";
  graph.inputs = {{"tokens", {{4}, pp::DType::int64}}};
  graph.targets = {{"next", {{4}, pp::DType::int64}}};
  graph.layers = {{"embedding",
                   "embedding",
                   {"tokens"},
                   {{"num_embeddings", vocabulary}, {"embedding_dim", std::int64_t{2}}},
                   ""},
                  {"head", "linear", {"embedding"}, {{"out_features", vocabulary}}, ""}};
  graph.outputs = {"head"};
  graph.loss = pp::LossSpec{"cross_entropy", {"head", "next"}, {}};
  return graph;
}

/// Of all samples, one after the other; T is the stored type.
template <class T>
std::vector<T> values(const pp::run::SampleTable& table, const pp::run::Records& records) {
  std::vector<std::int64_t> samples;
  for (std::int64_t i = 0; i < table.samples; ++i) samples.push_back(table.first + i);
  const std::size_t bytes = samples.size() * records.sample_bytes();
  REQUIRE(bytes % sizeof(T) == 0);
  std::vector<T> result(bytes / sizeof(T));
  pp::run::read_records(records, samples, {reinterpret_cast<char*>(result.data()), bytes});
  return result;
}

/// A folder and the model that reads it.
struct Case {
  explicit Case(pp::ModelGraph graph)
      : model(pp::resolve(std::move(graph))), request{.model = model, .path = folder.path()} {}

  pp::run::DataFiles open() const { return pp::run::open_data(request); }
  /// The message with the folder's name taken out.
  std::string refusal(pp::ErrorKind kind = pp::ErrorKind::data) const {
    try {
      open();
    } catch (const pp::Error& error) {
      CHECK(error.kind() == kind);
      std::string text = error.what();
      const std::string name = folder.path().string();
      for (auto at = text.find(name); at != std::string::npos; at = text.find(name))
        text.replace(at, name.size(), "DIR");
      return text;
    }
    return "accepted";
  }
  std::string refusal_of(const std::string& file, const std::string& bytes) const {
    folder.write(file, bytes);
    return refusal();
  }

  TestFolder folder;
  pp::ResolvedModel model;
  pp::run::DataRequest request;
};

}  // namespace pp::test
