// In place of the driver, libcuda.so.1: LibTorch asks it which devices are in use already, and refers to
// functions that compile and launch kernels.
#define NOT_HERE(function) \
  int function() { return kNotSupported; }

extern "C" {

constexpr int kNotSupported = 801;  // CUDA_ERROR_NOT_SUPPORTED

int cuDevicePrimaryCtxGetState(int /*device*/, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return 0;
}

// clang-format off
NOT_HERE(cuCtxGetCurrent) NOT_HERE(cuCtxSetCurrent) NOT_HERE(cuDeviceGet) NOT_HERE(cuDeviceGetAttribute)
NOT_HERE(cuDevicePrimaryCtxRetain) NOT_HERE(cuFuncGetAttribute) NOT_HERE(cuFuncSetAttribute)
NOT_HERE(cuFuncSetCacheConfig) NOT_HERE(cuGetErrorString) NOT_HERE(cuLaunchCooperativeKernel)
NOT_HERE(cuLaunchKernel) NOT_HERE(cuLinkAddData_v2) NOT_HERE(cuLinkComplete) NOT_HERE(cuLinkCreate_v2)
NOT_HERE(cuModuleGetFunction) NOT_HERE(cuModuleLoad) NOT_HERE(cuModuleLoadData) NOT_HERE(cuModuleLoadDataEx)
NOT_HERE(cuModuleUnload) NOT_HERE(cuOccupancyMaxActiveBlocksPerMultiprocessor) NOT_HERE(cuPointerGetAttribute)
NOT_HERE(cuTensorMapEncodeTiled)
// clang-format on

}  // extern "C"
