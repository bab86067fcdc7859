// Which call of a preloaded library fails, and how, by the environment:
//   PP_FAULT_CALL     the kind of call, as the library names it; `all` for every kind
//   PP_FAULT_FILE     calls on paths that contain this; empty or not given: any
//   PP_FAULT_AFTER    so many of them go well (0)
//   PP_FAULT_TIMES    so many fail then (all that follow)
//   PP_FAULT_COUNTER  a file of eight bytes in which all processes count together; else each process counts its
//   own PP_FAULT_SAID     a file that gets a line for each call that fails: its kind and its path PP_FAULT_HOW
//   an error (EIO unless given, ENOSPC, EACCES, EINTR, ENOMEM); `short`: half of the bytes are
//                     taken; `late`: 200 ms later; `pause`: the process is stopped for a second; `stop`: for
//                     good; `hang`: the call never returns, as on a network disk whose server has gone; `kill`:
//                     the process is killed before anything of the call is done; `none`: it goes well
// Nothing here takes memory or calls what a preloaded library replaces.
#pragma once

#include <string_view>

namespace pp::faults {

enum class Effect { none, failed, shortened };

/// What becomes of a call that is made now. `failed`: errno is set. Does not return where the process ends or
/// hangs.
Effect next_call(std::string_view call, std::string_view path);

/// Whether the environment asks for this kind of call at all, so that its path is worth finding out.
bool is_wanted(std::string_view call);

}  // namespace pp::faults
