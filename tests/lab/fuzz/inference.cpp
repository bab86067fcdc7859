#include "tests/lab/fuzz/inference.h"

#include <algorithm>

#include "libprofile/core/error.h"
#include "librun/checkpoint/weights.h"
#include "librun/data/synthetic.h"
#include "librun/infer.h"
#include "tests/librun/infer/silent.h"
#include "tests/librun/model_alone.h"

namespace pp::fuzz {

namespace {

test::NamedTensors samples_of(const plan::Plan& plan, const run::InferOptions& options) {
  const ResolvedModel model = resolve(plan.model);
  const run::MemoryDataset data = run::make_synthetic(model, options.synthetic_samples, options.seed,
                                                      run::Subset::test, plan.training.dtype);
  test::NamedTensors named;
  for (std::size_t i = 0; i < data.inputs.size(); ++i)
    named.emplace_back(model.graph.inputs[i].name, data.inputs[i].values.to(data.inputs[i].type));
  for (std::size_t i = 0; i < data.targets.size(); ++i)
    named.emplace_back(model.graph.targets[i].name, data.targets[i].values.to(data.targets[i].type));
  return named;
}

}  // namespace

std::string check_inference(const plan::Plan& plan, const test::NamedTensors& weights,
                            const std::filesystem::path& folder, Random& random) {
  run::InferOptions options;
  options.data = "synthetic";
  options.synthetic_samples = random.integer(1, 20);
  options.micro_batch = random.integer(1, 5);
  options.initial_weights = folder / "infer-weights.safetensors";
  options.outputs = folder / "infer-outputs.safetensors";
  options.stall_timeout = Seconds(30);
  test::write_tensors(options.initial_weights, weights);
  const test::NamedTensors expected =
      test::ModelAlone(plan.model, weights).outputs(samples_of(plan, options), options.micro_batch);
  test::SilentInference observer;
  try {
    run::infer(plan, options, observer);
  } catch (const Error& error) {
    return "trained, but its inference fails: " + std::string(error.what());
  }
  const test::NamedTensors found = run::read_weights(options.outputs);
  for (const auto& [name, values] : expected) {
    const auto same = std::ranges::find(found, name, &test::NamedTensors::value_type::first);
    if (same == found.end()) return "output " + name + " is missing";
    if (values.isfinite().all().item<bool>() && !values.equal(same->second))
      return "output " + name + " is not that of one device bit for bit";
  }
  return "";
}

}  // namespace pp::fuzz
