// planted CASE: a device's memory holds 1 and gets 7 in one stream, another one reads it; prints what was read.
// The cases say what orders the two.
//
//   event, nothing          the second stream waits for an event of the first one, or for nothing
//   blocking, non-blocking  the first one is the default stream, the second one keeps in step with it or not
//   host, pinned            a copy of the host's memory, which then gets 9: pageable, or pinned and read late
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

void require(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "planted: error %d\n", static_cast<int>(error));
  std::_Exit(1);
}

cudaStream_t make_stream(unsigned flags) {
  cudaStream_t stream = nullptr;
  require(cudaStreamCreateWithPriority(&stream, flags, 0));
  return stream;
}

constexpr std::size_t kBytes = 1000;

}  // namespace

int main(int count, char** arguments) {
  const std::string_view which = count > 1 ? arguments[1] : "";
  void *memory = nullptr, *host = nullptr, *source = nullptr;
  require(cudaMalloc(&memory, kBytes));
  require(cudaHostAlloc(&host, kBytes, 0));
  require(cudaHostAlloc(&source, kBytes, 0));
  char pageable[kBytes];
  const bool is_default = which == "blocking" || which == "non-blocking";
  const cudaStream_t writer = is_default ? nullptr : make_stream(cudaStreamNonBlocking);
  const cudaStream_t reader = make_stream(which == "blocking" ? cudaStreamDefault : cudaStreamNonBlocking);
  require(cudaMemsetAsync(memory, 1, kBytes, writer));
  require(cudaStreamSynchronize(writer));

  if (which == "host" || which == "pinned") {
    auto* from = which == "host" ? pageable : static_cast<char*>(source);
    std::memset(from, 7, kBytes);
    require(cudaMemcpyAsync(memory, from, kBytes, cudaMemcpyHostToDevice, reader));
    std::memset(from, 9, kBytes);
  } else {
    require(cudaMemsetAsync(memory, 7, kBytes, writer));
  }
  if (which == "event") {
    cudaEvent_t event = nullptr;
    require(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    require(cudaEventRecord(event, writer));
    require(cudaStreamWaitEvent(reader, event, 0));
  }
  require(cudaMemcpyAsync(host, memory, kBytes, cudaMemcpyDeviceToHost, reader));
  require(cudaStreamSynchronize(reader));
  std::printf("%d\n", static_cast<int>(static_cast<char*>(host)[0]));
  std::fflush(stdout);  // a race ends the process without it
}
