// How often this executable's own code asks for memory: operator new is replaced, and who called it is told by
// the return address. Tensors come from elsewhere: LibTorch makes them inside its shared objects.
#pragma once

#include <cstdint>

namespace pp::test {

struct Allocations {
  std::int64_t own = 0;  ///< by code of this executable
  std::int64_t all = 0;  ///< by shared objects too
};
/// Of the calling thread so far.
Allocations allocations();

}  // namespace pp::test
