# What `cmake --install` puts where, and what cpack packs (.tar.gz, .deb). The tree may be moved as a whole:
#   bin/        the tools
#   lib/pp/     what computes with LibTorch, loaded when needed
#   share/pp/   devices, clusters, models; schemas of the documents
#   share/      manual pages; completion for bash, zsh and fish
include_guard()
include(GNUInstallDirs)

# Beside the modules (a folder or a link lib/pp/torch) or in a Python environment whose folder the tree is in. Elsewhere it is
# looked for when a tool starts to compute (apps/computing/libtorch_place.h).
set(PP_INSTALL_RPATH "$ORIGIN" "$ORIGIN/torch/lib" CACHE STRING "Where installed modules look for libraries, relative to themselves")

install(TARGETS pp-plan RUNTIME DESTINATION bin)
set_target_properties(pp-plan PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/pp")
if(PP_TORCH)
  install(TARGETS pp-profile pp-run RUNTIME DESTINATION bin)
  set_target_properties(pp-profile pp-run PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/pp")
  foreach(module IN ITEMS pp_computing pp_cuda pp_nccl)
    if(TARGET ${module})
      install(TARGETS ${module} LIBRARY DESTINATION lib/pp)
      set_target_properties(${module} PROPERTIES INSTALL_RPATH "${PP_INSTALL_RPATH}")
    endif()
  endforeach()
endif()

# The tools find these beside them in the build folder as well.
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/share/pp)
foreach(folder IN ITEMS devices trainers clusters models)
  install(DIRECTORY configs/${folder} DESTINATION share/pp FILES_MATCHING PATTERN "*.json")
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/configs/${folder} ${PROJECT_BINARY_DIR}/share/pp/${folder} SYMBOLIC)
endforeach()

# What the tools say about themselves.
set(PP_TOOLS pp-plan)
if(PP_TORCH)
  list(APPEND PP_TOOLS pp-profile pp-run)
endif()
install(CODE "set(PP_BIN \"${CMAKE_RUNTIME_OUTPUT_DIRECTORY}\")\nset(PP_TOOLS \"${PP_TOOLS}\")")
install(SCRIPT ${PROJECT_SOURCE_DIR}/scripts/cmake/install_texts.cmake)

set(CPACK_PACKAGE_NAME pp-tools)
set(CPACK_PACKAGE_CONTACT "pp-tools")
set(CPACK_GENERATOR TGZ DEB)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_FILE_NAME pp-tools-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "pp-tools")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
if(PP_TORCH)  # which no package has: a dependency that the modules say themselves when it is missing
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${LIBTORCH_ROOT}/lib ${LIBTORCH_ROOT}/../nvidia/cu13/lib ${LIBTORCH_ROOT}/../nvidia/nccl/lib)
endif()
include(CPack)
