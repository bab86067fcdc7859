// The built-in families, in small sizes, through the segment runner.
#include <algorithm>

#include "libprofile/model/families/families.h"
#include "tests/libprofile/model/harness.h"
#include "tests/support/torch_test.h"

using namespace pp;
using namespace pp::model;
using namespace pp::model::test;

namespace {

constexpr const char* kSmall[] = {"mlp:inputs=20,width=16,layers=4,dropout=0.2",
                                  "lenet5",
                                  "vgg11:classes=10,image=32,width=32,batch_norm=1",
                                  "resnet18:classes=10,image=32,width=8",
                                  "resnet50:classes=10,image=32,width=4",
                                  "transformer:layers=2,width=16,heads=2,vocabulary=13,sequence=8"};

}  // namespace

TEST_SUITE("libprofile/model/families_run") {
  TEST_CASE("every family trains with the same bits whole and in four segments") {
    for (const char* spec : kSmall) {
      CAPTURE(spec);
      const ResolvedModel model = resolve(build_family(spec));
      const Job job{.model = &model, .micro_batches = {3, 2}};
      const Outcome whole = run_stages(job, cut_at(model, {}));
      const int n = model.layer_count();
      CHECK(difference(whole, run_stages(job, cut_at(model, {n / 4, n / 2, n - 2}))) == "");
      CHECK(difference(whole, run_stages(job, cut_at(model, {n / 3}), Halves::apart)) == "");
      for (const auto& layer : whole.gradients) {
        CHECK(std::all_of(layer.begin(), layer.end(),
                          [](const at::Tensor& gradient) { return gradient.defined(); }));
      }
    }
  }
}
