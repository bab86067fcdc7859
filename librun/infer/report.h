// What an inference took (document pp.inference, written only). Free of Torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/units.h"
#include "librun/report/report.h"

namespace pp::run {

/// How far it is, in samples or, of a generation, in tokens.
struct InferProgress {
  std::int64_t done = 0, all = 0;
  double per_s = 0;
};

/// From the beginning of a pass's first forward to the end of its last one.
struct Latency {
  Seconds median{}, p95{}, largest{};
};

struct InferWorker {
  WorkerId id{};
  Seconds busy{};
  double idle_fraction = 0;  ///< 1 - busy/elapsed
  Bytes peak;
};

struct InferReport {
  Context context;
  plan::Plan plan;
  std::string plan_hash;
  Settings settings;
  std::uint64_t seed = 0;
  std::string exit_reason;  ///< `completed`, `interrupted`
  std::int64_t samples = 0;
  std::optional<std::int64_t> tokens;  ///< that a generation has made
  std::vector<std::string> texts;      ///< its sequences, where that is asked for; not in the document
  int micro_batch = 0;                 ///< samples of a pass, the last one may have fewer
  std::int64_t passes = 0;
  Seconds elapsed{};  ///< from the first forward to the end of the last one
  double per_s = 0;   ///< samples, or tokens
  Latency latency;
  std::vector<InferWorker> workers;
  std::vector<OpTime> op_times;  ///< of forwards; predicted where a pass is a micro-batch of the plan
};

Keys inference_keys();
Json to_json(const InferReport& report);

/// Called on the calling thread.
class InferObserver {
 public:
  virtual ~InferObserver() = default;
  virtual void progress(const InferProgress& progress) = 0;
  virtual void warning(std::string_view text) = 0;
};

}  // namespace pp::run
