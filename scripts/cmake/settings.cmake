# What every target of the project shares: language level, warnings, include root, sanitizers.
include_guard()
include(precompile)
include(unity)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # Files that use a precompiled header hit the cache only with this sloppiness; a miss in depend mode does not
  # preprocess the file once more. The inode cache: a precompiled header is hashed once, not for every file.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_DEPEND=1
    CCACHE_INODECACHE=1 ${CCACHE_PROGRAM})
endif()

add_library(pp_warnings INTERFACE)
target_compile_options(pp_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor -Woverloaded-virtual
  -Wno-restrict  # g++ 12 sees overlaps in std::string that are not there
  "$<$<BOOL:${PP_PCH}>:-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread>")  # and once precompiled, bounds

add_library(pp_settings INTERFACE)
target_compile_features(pp_settings INTERFACE cxx_std_20)
target_include_directories(pp_settings INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_definitions(pp_settings INTERFACE PP_VERSION="${PROJECT_VERSION}")
# One rounding per operation: the planner's searches compare doubles bit for bit. Any object may become part of a
# module that is loaded later, where nobody puts other functions in the place of its own.
target_compile_options(pp_settings INTERFACE -ffp-contract=off -fPIC -fno-semantic-interposition)
# A program takes the functions that it calls, not all of their files.
target_compile_options(pp_settings INTERFACE $<$<CONFIG:Release>:-ffunction-sections> $<$<CONFIG:Release>:-fdata-sections>)
target_link_options(pp_settings INTERFACE $<$<CONFIG:Release>:LINKER:--gc-sections>)
if(PP_SANITIZE)
  target_compile_options(pp_settings INTERFACE -fsanitize=${PP_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(pp_settings INTERFACE -fsanitize=${PP_SANITIZE})
endif()

# LibTorch's and CUDA's checks say in which file they failed: from the repository's root, wherever it was built.
set(PP_FILE_NAMES -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)

# Code that runs once (options, tables, messages) is compiled for size: a third less of it, in a tenth less time.
set(PP_COLD_OPTIONS $<$<CONFIG:Release>:-Os>)

# pp_cold(TARGET): of such code.
function(pp_cold target)
  target_compile_options(${target} PRIVATE ${PP_COLD_OPTIONS})
  pp_precompile(${target} plain_cold OPTIONS ${PP_COLD_OPTIONS})
endfunction()

# pp_library(NAME [TORCH] [COLD] SOURCES ... HEADERS ... LINK ...): a static library pp_NAME with the alias pp::NAME.
# LINK is public. COLD: pp_cold(). TORCH links LibTorch privately: its include directory brings an fmt that collides with spdlog's.
function(pp_library name)
  cmake_parse_arguments(arg "TORCH;COLD" "" "SOURCES;HEADERS;LINK" ${ARGN})
  pp_unity(sources pp_${name} ${arg_SOURCES})
  add_library(pp_${name} STATIC ${sources})
  add_library(pp::${name} ALIAS pp_${name})
  target_sources(pp_${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${arg_HEADERS})
  target_link_libraries(pp_${name} PUBLIC pp_settings ${arg_LINK} PRIVATE pp_warnings)
  if(arg_COLD)
    pp_cold(pp_${name})
  elseif(NOT arg_TORCH)
    pp_precompile(pp_${name} plain)
  else()
    pp_use_torch(pp_${name})
    target_compile_options(pp_${name} PRIVATE ${PP_FILE_NAMES})
    pp_precompile(pp_${name} torch LINK pp_torch)
    # The targets that verify its headers, and only these, see LibTorch without linking it themselves.
    set(verifies $<BOOL:$<FILTER:$<TARGET_PROPERTY:NAME>,INCLUDE,_verify_interface_header_sets$>>)
    target_include_directories(pp_${name} SYSTEM INTERFACE
      $<${verifies}:$<TARGET_PROPERTY:LibTorch::cpu,INTERFACE_INCLUDE_DIRECTORIES>>)
  endif()
endfunction()

# pp_module(NAME SOURCES ... LINK ...): lib/pp/pp-NAME.so, a part with LibTorch that programs load when they need it
# (libprofile/device/module.h). It answers its own calls, whoever has functions of the same names.
function(pp_module name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  pp_unity(sources pp_${name} ${arg_SOURCES})
  add_library(pp_${name} MODULE ${sources})
  set_target_properties(pp_${name} PROPERTIES PREFIX "" OUTPUT_NAME pp-${name}
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/pp)
  target_link_libraries(pp_${name} PRIVATE pp_settings pp_warnings ${arg_LINK})
  target_link_options(pp_${name} PRIVATE LINKER:-Bsymbolic-functions LINKER:--no-undefined)
  target_compile_options(pp_${name} PRIVATE ${PP_FILE_NAMES})
  pp_use_torch(pp_${name})
  pp_precompile(pp_${name} torch LINK pp_torch)
endfunction()

# LibTorch for one target, PRIVATE. -g1: full debug information doubles the compile time of Torch files. Torch's own
# headers include single operations, not all 2,000.
function(pp_use_torch target)
  if(NOT TARGET pp_torch)
    add_library(pp_torch INTERFACE)
    target_link_libraries(pp_torch INTERFACE LibTorch::cpu)
    target_compile_options(pp_torch INTERFACE $<$<CONFIG:Debug>:-g1>)
    target_compile_definitions(pp_torch INTERFACE AT_PER_OPERATOR_HEADERS)
  endif()
  target_link_libraries(${target} PRIVATE pp_torch)
endfunction()
