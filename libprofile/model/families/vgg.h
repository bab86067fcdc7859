// The convolutional part of VGG, which other networks use as their trunk.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "libprofile/model/families/builder.h"

namespace pp::model {

/// Convolutions per block; each block ends with a pool that halves the image.
using VggDepths = std::array<int, 5>;
inline constexpr VggDepths kVgg16{2, 2, 3, 3, 3};

/// `x`: an image. Returns the pools that end the blocks.
std::vector<std::string> add_vgg_features(GraphBuilder& builder, std::string x, const VggDepths& depths,
                                          bool batch_norm);

}  // namespace pp::model
