// Mutations that know nothing of a format but its separators: bytes, cells, numbers.
#pragma once

#include <string>
#include <string_view>

#include "tests/lab/fuzz/random.h"

namespace pp::fuzz {

/// A number that readers and products stumble over, as text: 0, -1, 2^31, 2^63-1, 1e308, 1.5, nothing, ...
std::string extreme_number(Random& random);

/// One change: bytes flipped, cut out, repeated, exchanged, or the end cut off.
void mutate_bytes(Random& random, std::string& text);

/// One change of the parts between `separators`: dropped, repeated, moved, emptied, a number in it replaced.
void mutate_cells(Random& random, std::string& text, std::string_view separators);

}  // namespace pp::fuzz
