# What nearly every file includes, parsed once per kind of target. A library's own headers stay out: who edits one
# compiles what includes it and no more. PP_PCH=OFF (preset dev) shows a file that forgets an include.
include_guard()

set(_standard <algorithm> <array> <charconv> <cmath> <cstdint> <filesystem> <fstream> <functional> <limits> <map>
  <memory> <numeric> <optional> <set> <span> <sstream> <string> <string_view> <tuple> <utility> <variant> <vector>
  <nlohmann/json_fwd.hpp>)
# Most of the units without LibTorch read or write JSON.
set(PP_PRECOMPILED_plain ${_standard} <nlohmann/json.hpp>)
set(PP_PRECOMPILED_plain_cold ${PP_PRECOMPILED_plain})
set(PP_PRECOMPILED_test ${PP_PRECOMPILED_plain} ${PROJECT_SOURCE_DIR}/tests/support/doctest.h)
# Any ATen/ops/*.h costs what the first one costs.
set(PP_PRECOMPILED_torch ${_standard} <ATen/core/Tensor.h> <ATen/ops/empty.h>)
set(PP_PRECOMPILED_torch_test ${PP_PRECOMPILED_torch} ${PROJECT_SOURCE_DIR}/tests/support/torch_test.h)

# pp_precompile(TARGET KIND [LINK ...] [OPTIONS ...]): uses the headers of a kind, compiled once for all its targets. LINK and
# OPTIONS decide the flags, which must be those of the target.
function(pp_precompile target kind)
  if(NOT PP_PCH)
    return()
  endif()
  cmake_parse_arguments(arg "" "" "LINK;OPTIONS" ${ARGN})
  if(NOT TARGET pp_precompiled_${kind})
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/precompiled/${kind}.cpp CONTENT "// Carries the headers.\n")
    add_library(pp_precompiled_${kind} OBJECT ${PROJECT_BINARY_DIR}/precompiled/${kind}.cpp)
    target_link_libraries(pp_precompiled_${kind} PRIVATE pp_settings pp_warnings ${arg_LINK})
    target_compile_options(pp_precompiled_${kind} PRIVATE ${arg_OPTIONS})
    target_precompile_headers(pp_precompiled_${kind} PRIVATE ${PP_PRECOMPILED_${kind}})
  endif()
  target_precompile_headers(${target} REUSE_FROM pp_precompiled_${kind})
endfunction()
