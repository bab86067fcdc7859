// Forwards alone on a plan that has been trained.
#pragma once

#include <filesystem>
#include <string>

#include "tests/lab/fuzz/random.h"
#include "tests/librun/reference.h"

namespace pp::fuzz {

/// Runs pp-run infer in `folder` with these weights on a few synthetic samples. Its outputs must be those of
/// one device bit for bit, whatever the plan. Returns what is wrong; empty: nothing.
std::string check_inference(const plan::Plan& plan, const test::NamedTensors& weights,
                            const std::filesystem::path& folder, Random& random);

}  // namespace pp::fuzz
