// Models as an importer writes them: graphs and calls of LibTorch, names of a module tree.
#pragma once

#include <string_view>

#include "libprofile/core/model/model_graph.h"

namespace pp::test {

/// Convolutions, a residual block with two batch norms and dropout as one graph, one with a twice called
/// module, a head: 6 layers. The loss is a graph as well.
std::string_view imported_residual_text();
pp::ModelGraph imported_residual();
/// Tokens through attention of two heads as one graph (rows 2, integers by the batch, a mask with -inf, a table
/// read by an int64 buffer, dropout), calls as layers, one of which detaches: 8 layers.
std::string_view imported_attention_text();
pp::ModelGraph imported_attention();

}  // namespace pp::test
