// The IDX format of the MNIST files: two zero bytes, the element type, the number of dimensions, the dimensions
// as big-endian 32-bit numbers, then the elements, big-endian. Free of Torch.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "librun/data/records.h"

namespace pp::run {

/// Reads the header and checks it against the file's size. Throws pp::Error (data): `PATH: not an IDX file:
/// ...`, `PATH: 100 bytes of elements, 784 expected for int8 [1, 28, 28]`.
Records read_idx(const std::filesystem::path& path);

/// Header and elements as a file, for tests and converters; `elements` in the machine's byte order.
std::string idx_bytes(ElementType type, const Shape& shape, std::string_view elements);

}  // namespace pp::run
