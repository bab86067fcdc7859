// LibTorch's operations that have no deterministic kernel on a GPU, forward or backward.
#pragma once

#include "libprofile/core/model/aten_call.h"

namespace pp::model::aten {

/// By the list of torch.use_deterministic_algorithms (PyTorch 2.11), and what is computed like those. Calls
/// that make no floating tensor are left out: sums of whole numbers do not depend on their order.
bool is_nondeterministic(const AtenCall& call);

}  // namespace pp::model::aten
