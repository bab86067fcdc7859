// A profile made of round numbers, for tests that need a file and not a measurement.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "libprofile/core/profile.h"

namespace pp::test {

/// An mlp with one layer per entry of `forward_ms`, alternating linear and relu; backward takes twice the
/// forward, times and activations grow linearly from 1 to 16 samples. Linear layers have 64 x 64 weights and a
/// bias.
Profile sample_profile(std::span<const double> forward_ms);

/// Writes it as `folder/profile.json`.
std::filesystem::path write_profile(const std::filesystem::path& folder, const Profile& profile);

}  // namespace pp::test
