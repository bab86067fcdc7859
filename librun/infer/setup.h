// All checks before an inference, and what follows from them.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "librun/infer/options.h"
#include "librun/infer/sequences.h"
#include "librun/worker/job.h"

namespace pp::run {

/// The model as forwards alone see it: without its loss, and so without what only the loss reads.
ResolvedModel without_loss(ResolvedModel model);

/// What an inference reads, found and checked, but not read.
struct InferData {
  ResolvedModel model;               ///< whose inputs the data have
  std::set<std::string> left_out;    ///< inputs and targets that nobody reads
  std::optional<SampleTable> table;  ///< none: synthetic
  std::int64_t samples = 0;
};

struct InferSetup {
  Setup setup;
  InferData data;
  std::optional<SequencePlace> sequence;  ///< of a generation
  bool by_pieces = false;                 ///< each token by itself, with the keys and values of those before
  int micro_batch = 1;
};

/// Throws pp::Error (data, usage, device).
InferSetup make_infer_setup(const plan::Plan& plan, const InferOptions& options);

std::unique_ptr<const Dataset> load(InferData data, const plan::Plan& plan, const InferOptions& options);

}  // namespace pp::run
