// What a pass keeps for backward: estimated from shapes against counted bytes, family by family. The estimates
// of times have no such test, as no test asserts times.
#include <cmath>
#include <numeric>
#include <string>

#include "libprofile/device/process.h"
#include "libprofile/estimate/layer_work.h"
#include "libprofile/measure/model_runner.h"
#include "libprofile/model/families/families.h"
#include "tests/libprofile/measure/fakes.h"
#include "tests/support/torch_test.h"

namespace pp::profile::estimated_bytes_test {
namespace {

constexpr std::int64_t kSamples = 2;

double measured(const ResolvedModel& model) {
  test::CountingClock clock;
  ClockTimer timer{clock};
  const MemoryAccount account;
  const ChargeMemory charged(account);
  ModelRunner runner(model, whole_model(model), {.micro_batch_sizes = {kSamples}}, account, at::kCPU, timer);
  double sum = 0;
  for (const SavedBytes& saved : runner.measure_bytes(0).saved) sum += static_cast<double>(saved.total.value);
  return sum;
}

double estimated(const ResolvedModel& model) {
  double sum = 0;
  for (const LayerWork& work :
       layer_work(model, split_operations(model, 1), {.kind = DeviceKind::cpu, .micro_batch_size = kSamples}))
    sum += work.saved;
  return sum;
}

// Not counted: what is there once for a micro-batch, whatever its samples, as the statistics of batch norm (so
// images are large) and weights that dropout has thinned (so AWD-LSTM has them whole).
constexpr const char* kCases[] = {
    "vgg11:classes=10,image=32,width=32",
    "alexnet:classes=10,image=63,width=32",
    "inception_v3:classes=10,image=75",
    "resnet18:classes=10,image=96,width=8",
    "densenet121:classes=10,image=96,growth=4",
    "bert_base:layers=2,width=64,heads=2,vocabulary=99,sequence=64",
    "transformer:layers=2,width=64,heads=2,vocabulary=99,sequence=64",
    "gpt2:layers=2,width=64,heads=2,vocabulary=99,sequence=64,dropout=0",
    "gpt2:layers=2,width=64,heads=2,vocabulary=99,sequence=64",
    "gpt_neox:layers=2,width=64,heads=2,hidden=96,vocabulary=99,sequence=64",
    "opt:layers=2,width=64,heads=2,hidden=96,vocabulary=99,sequence=64,positions=64",
    "llama:layers=2,width=64,heads=4,kv_heads=2,head_width=16,hidden=96,vocabulary=99,sequence=64",
    "qwen3:layers=2,width=64,heads=4,kv_heads=2,head_width=16,hidden=96,vocabulary=99,sequence=64",
    "gemma2:layers=2,width=64,heads=4,kv_heads=2,head_width=16,hidden=96,vocabulary=99,sequence=64,window=9",
    "t5_small:layers=2,width=64,heads=2,hidden=96,vocabulary=99,source=64,target=64",
    "gnmt:layers=3,width=240,vocabulary=99,source=40,target=40",
    "awd_lstm:width=120,hidden=240,vocabulary=99,sequence=60,weight_dropout=0",
};

}  // namespace

TEST_SUITE("libprofile/measure/estimated_bytes") {
  TEST_CASE("what families keep for backward is estimated within 3 %") {
    prepare_process();
    for (const std::string spec : kCases) {
      CAPTURE(spec);
      const ResolvedModel model = resolve(model::build_family(spec));
      const double counted = measured(model), shapes = estimated(model);
      CAPTURE(counted);
      CAPTURE(shapes);
      CHECK(std::abs(shapes - counted) <= 0.03 * counted);
    }
  }
}

}  // namespace pp::profile::estimated_bytes_test
