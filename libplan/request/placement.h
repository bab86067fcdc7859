// Which devices of a cluster a pipeline goes to first.
#pragma once

#include "libprofile/core/enum_names.h"

namespace pp::plan {

enum class Placement {
  automatic,  ///< all of them, and on small clusters every order that makes a difference
  packed,     ///< node by node
  scatter,    ///< one device per node in turn
  fresh       ///< a stage begins on an empty node while there is one that holds it (DAPPLE's FreshFirst)
};

}  // namespace pp::plan

namespace pp {
template <>
struct EnumNames<plan::Placement> {
  static constexpr std::array table{
      std::pair{plan::Placement::automatic, "auto"sv}, std::pair{plan::Placement::packed, "packed"sv},
      std::pair{plan::Placement::scatter, "scatter"sv}, std::pair{plan::Placement::fresh, "fresh"sv}};
};
}  // namespace pp
