# Sources of a target, several to a compilation: what they all include is parsed and what they all instantiate is compiled
# once. PP_UNITY=OFF (preset dev) compiles every file on its own, and shows one that leans on its neighbours.
include_guard()

set(PP_UNITY_SIZE 5)  # files to a unit: what an edit compiles again

# pp_unity(RESULT TARGET SOURCES...): the sources to give to a target in the place of these: neighbours in the list share
# a unit, so file-local names differ within a target. Generated files, objects and files with the property
# SKIP_UNITY_BUILD_INCLUSION stay as they are. The units name files from the repository's root: they are the same in every
# checkout.
function(pp_unity result target)
  set(files "")
  set(units "")
  foreach(source IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH source NORMALIZE OUTPUT_VARIABLE path)
    cmake_path(IS_PREFIX PROJECT_BINARY_DIR ${path} generated)
    get_property(apart SOURCE ${source} PROPERTY SKIP_UNITY_BUILD_INCLUSION)
    if(PP_UNITY AND source MATCHES "\\.cpp$" AND NOT generated AND NOT apart)
      cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
      list(APPEND files ${path})
    else()
      list(APPEND units ${source})
    endif()
  endforeach()
  list(LENGTH files count)
  math(EXPR groups "(${count} + ${PP_UNITY_SIZE} - 1) / ${PP_UNITY_SIZE}")
  set(index 0)
  foreach(file IN LISTS files)
    math(EXPR group "${index} * ${groups} / ${count}")
    string(APPEND text_${group} "#include \"${file}\"\n")
    math(EXPR index "${index} + 1")
  endforeach()
  set(group 0)
  while(group LESS groups)
    set(unit ${CMAKE_CURRENT_BINARY_DIR}/unity/${target}_${group}.cpp)
    file(CONFIGURE OUTPUT ${unit} CONTENT "${text_${group}}" @ONLY)
    list(APPEND units ${unit})
    math(EXPR group "${group} + 1")
  endwhile()
  set(${result} ${units} PARENT_SCOPE)
endfunction()
