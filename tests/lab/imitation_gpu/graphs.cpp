#include "tests/lab/imitation_gpu/graphs.h"

#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace pp::test::gpu {
namespace {

using Graph = std::vector<Work>;

struct Capture {
  unsigned long long id = 0;
  Graph graph;
};

/// Those that have begun, by stream. Lives as long as the process.
struct Captures {
  std::mutex mutex;
  std::map<cudaStream_t, Capture> by_stream;
  unsigned long long begun = 0;

  static Captures& get() {
    static auto* captures = new Captures;
    return *captures;
  }
};

thread_local int begun_here = 0;
thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;

Graph& graph_of(void* handle) { return *static_cast<Graph*>(handle); }

}  // namespace

bool is_capturing(cudaStream_t stream) {
  Captures& captures = Captures::get();
  const std::lock_guard lock(captures.mutex);
  return captures.by_stream.contains(stream);
}

void hand_over_or_capture(cudaStream_t stream, Work work) {
  Captures& captures = Captures::get();
  {
    const std::lock_guard lock(captures.mutex);
    const auto capture = captures.by_stream.find(stream);
    if (capture != captures.by_stream.end()) return capture->second.graph.push_back(std::move(work));
  }
  hand_over(stream, work);
}

bool forbidden_in_capture() { return begun_here > 0 && mode != cudaStreamCaptureModeRelaxed; }

}  // namespace pp::test::gpu

using namespace pp::test::gpu;

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): CUDA's names
extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  Captures& captures = Captures::get();
  const std::lock_guard lock(captures.mutex);
  if (stream == nullptr || captures.by_stream.contains(stream)) return cudaErrorStreamCaptureUnsupported;
  captures.by_stream[stream].id = ++captures.begun;
  ++begun_here;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  Captures& captures = Captures::get();
  const std::lock_guard lock(captures.mutex);
  const auto capture = captures.by_stream.find(stream);
  if (capture == captures.by_stream.end()) return cudaErrorIllegalState;
  *graph = reinterpret_cast<cudaGraph_t>(new Graph(std::move(capture->second.graph)));
  captures.by_stream.erase(capture);
  --begun_here;
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = is_capturing(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies, const cudaGraphEdgeData** edges,
                                     std::size_t* dependency_count) {
  Captures& captures = Captures::get();
  const std::lock_guard lock(captures.mutex);
  const auto capture = captures.by_stream.find(stream);
  const bool active = capture != captures.by_stream.end();
  *status = active ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  if (id != nullptr && active) *id = capture->second.id;
  if (graph != nullptr) *graph = nullptr;
  if (dependencies != nullptr) *dependencies = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (dependency_count != nullptr) *dependency_count = 0;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* other) {
  std::swap(mode, *other);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = reinterpret_cast<cudaGraphExec_t>(new Graph(graph_of(graph)));
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, std::size_t* count) {
  *count = graph_of(graph).size();
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  for (const Work& work : graph_of(executable)) hand_over(stream, work);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete &graph_of(graph);
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete &graph_of(executable);
  return cudaSuccess;
}

}  // extern "C"
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
