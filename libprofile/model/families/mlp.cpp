#include "libprofile/model/families/builder.h"

namespace pp::model {

ModelGraph build_mlp(GraphBuilder builder, const Arguments& arguments) {
  const std::int64_t layers = arguments.whole("layers");
  std::string x = builder.input("features", {{arguments.whole("inputs")}});
  for (std::int64_t i = 1; i < layers; ++i) {
    const std::string number = std::to_string(i);
    x = builder.linear("fc" + number, x, arguments.whole("width"));
    x = builder.add("relu" + number, "relu", {x});
    x = builder.dropout("dropout" + number, x, arguments.number("dropout"));
  }
  x = builder.linear("fc" + std::to_string(layers), x, arguments.whole("classes"));
  return std::move(builder).classify(x, {});
}

}  // namespace pp::model
