// Small models for the runtime's tests.
#pragma once

#include "libprofile/core/model/model_graph.h"

namespace pp::test {

/// `layers` times linear + tanh, width 6, then a linear to 3 classes: 2*layers + 1 layers.
pp::ModelGraph mlp(int layers);
/// Three linears with dropout between: 8 layers.
pp::ModelGraph dropout_mlp();
/// A linear, three linears that share weights, a linear to 3 classes, tanh between: 9 layers.
pp::ModelGraph shared_mlp();
/// Convolutions with batch norm, a residual edge and a long skip into a concat: 15 layers.
pp::ModelGraph residual_net();
/// Two linears of this width with tanh, whose results are added, and a linear to 3 classes: 6 layers, tanh0 is
/// 1, the sum 4.
pp::ModelGraph skip_mlp(int width = 6);
/// Regression: three numbers that multiply one, mse; 3 layers.
pp::ModelGraph product();
/// Regression: a linear, tanh, a linear, mse.
pp::ModelGraph regression();
/// x [4, 6] -> embed -> two blocks of attention with low-rank additions to query and value -> head. Only the
/// additions train.
pp::ModelGraph lora();
/// A frozen embedding that is the head, too.
pp::ModelGraph frozen_embedding();
/// fc0 and fc1 stand before a detach; a second head, "aux", is read by no loss.
pp::ModelGraph cut_off();

}  // namespace pp::test
