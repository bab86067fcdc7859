#include "libprofile/model/families/builder.h"

namespace pp::model {

ModelGraph build_mlp(GraphBuilder builder, const Arguments& arguments) {
  const std::int64_t layers = arguments.whole("layers");
  std::string x = builder.input("features", {{arguments.whole("inputs")}});
  const auto name = [](std::string kind, std::int64_t i) { return kind.append(std::to_string(i)); };
  for (std::int64_t i = 1; i < layers; ++i) {
    x = builder.linear(name("fc", i), x, arguments.whole("width"));
    x = builder.add(name("relu", i), "relu", {x});
    x = builder.dropout(name("dropout", i), x, arguments.number("dropout"));
  }
  x = builder.linear(name("fc", layers), x, arguments.whole("classes"));
  return std::move(builder).classify(x, {});
}

}  // namespace pp::model
