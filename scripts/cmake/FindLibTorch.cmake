# Finds the LibTorch of a torch wheel and offers it as LibTorch::cpu (libtorch_cpu and libc10 only) and, where the wheel
# and its NVIDIA libraries hold CUDA and NCCL, and a program with them compiles and links, as LibTorch::cuda; otherwise
# LIBTORCH_NO_CUDA says why not. Torch's own package configuration needs a CUDA toolkit and nvcc to configure even a
# CPU-only build; this one needs neither.
#
# Looked for in LIBTORCH_ROOT and in $PP_LIBTORCH (folders with include/ and lib/), then where scripts/setup puts it:
# $PP_CACHE/torch-2.11.0/torch, where PP_CACHE is ${XDG_CACHE_HOME:-~/.cache}/pp unless set. The NVIDIA libraries stand
# beside it, in nvidia/, as pip installs them.
if(LIBTORCH_INCLUDE_DIR AND NOT EXISTS ${LIBTORCH_INCLUDE_DIR})
  unset(LIBTORCH_INCLUDE_DIR CACHE)  # it has moved since the last configuration
endif()
set(_pp_cache "$ENV{PP_CACHE}")
if(NOT _pp_cache)
  set(_pp_cache "$ENV{XDG_CACHE_HOME}")
  if(NOT _pp_cache)
    set(_pp_cache "$ENV{HOME}/.cache")
  endif()
  string(APPEND _pp_cache "/pp")
endif()

find_path(LIBTORCH_INCLUDE_DIR torch/csrc/api/include/torch/torch.h
  HINTS ${LIBTORCH_ROOT}/include $ENV{PP_LIBTORCH}/include ${_pp_cache}/torch-2.11.0/torch/include NO_DEFAULT_PATH)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch REQUIRED_VARS LIBTORCH_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "run scripts/setup, or set LIBTORCH_ROOT to the torch folder of an installed wheel")

if(LibTorch_FOUND AND NOT TARGET LibTorch::cpu)
  cmake_path(GET LIBTORCH_INCLUDE_DIR PARENT_PATH LIBTORCH_ROOT)
  add_library(LibTorch::cpu INTERFACE IMPORTED)
  target_include_directories(LibTorch::cpu SYSTEM INTERFACE
    ${LIBTORCH_ROOT}/include ${LIBTORCH_ROOT}/include/torch/csrc/api/include)
  target_link_libraries(LibTorch::cpu INTERFACE ${LIBTORCH_ROOT}/lib/libtorch_cpu.so ${LIBTORCH_ROOT}/lib/libc10.so)

  set(_nv ${LIBTORCH_ROOT}/../nvidia)
  set(LIBTORCH_NO_CUDA "it has no CUDA libraries")
  if(EXISTS ${LIBTORCH_ROOT}/lib/libtorch_cuda.so AND EXISTS ${_nv}/cu13/lib/libcudart.so.13
     AND EXISTS ${_nv}/nccl/lib/libnccl.so.2)
    add_library(libtorch_cuda INTERFACE IMPORTED)
    target_include_directories(libtorch_cuda SYSTEM INTERFACE ${_nv}/cu13/include ${_nv}/nccl/include)
    target_link_libraries(libtorch_cuda INTERFACE LibTorch::cpu
      -Wl,--push-state,--no-as-needed ${LIBTORCH_ROOT}/lib/libtorch_cuda.so -Wl,--pop-state
      ${LIBTORCH_ROOT}/lib/libc10_cuda.so ${_nv}/cu13/lib/libcudart.so.13 ${_nv}/nccl/lib/libnccl.so.2)
    # Wheels that torch itself asks for lack headers (crt/, nv/), which a toolkit brings.
    if(NOT LIBTORCH_CUDA_LINKS STREQUAL LIBTORCH_ROOT)
      try_compile(_links SOURCE_FROM_CONTENT cuda_links.cpp
"#include <nccl.h>

#include <ATen/cuda/CUDAContextLight.h>
int main() { return at::cuda::getNumGPUs() + static_cast<int>(ncclGetLastError(nullptr) == nullptr); }
"
        LINK_LIBRARIES libtorch_cuda CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON OUTPUT_VARIABLE _output NO_CACHE)
      set(LIBTORCH_CUDA_LINKS "NO")
      if(_links)
        set(LIBTORCH_CUDA_LINKS ${LIBTORCH_ROOT})
      endif()
      set(LIBTORCH_CUDA_LINKS ${LIBTORCH_CUDA_LINKS} CACHE INTERNAL "The LibTorch whose CUDA was seen to compile")
    endif()
    if(LIBTORCH_CUDA_LINKS)
      add_library(LibTorch::cuda ALIAS libtorch_cuda)
    else()
      string(REGEX MATCH "[^\n]*error[^\n]*" _error "${_output}")
      set(LIBTORCH_NO_CUDA "a program with CUDA and NCCL does not compile: ${_error}")
    endif()
  endif()
  if(TARGET LibTorch::cuda)
    message(STATUS "Found CUDA and NCCL: ${LIBTORCH_ROOT}")
  else()
    message(STATUS "No CUDA from ${LIBTORCH_ROOT}: ${LIBTORCH_NO_CUDA}")
  endif()
endif()
