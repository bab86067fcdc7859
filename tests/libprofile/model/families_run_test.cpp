// The built-in families, in small sizes, through the segment runner.
#include <algorithm>
#include <string_view>

#include "libprofile/model/families/families.h"
#include "tests/libprofile/model/harness.h"
#include "tests/support/torch_test.h"

using namespace pp;
using namespace pp::model;
using namespace pp::model::test;

namespace {

constexpr std::string_view kPlain[] = {"mlp:inputs=20,width=16,layers=4,dropout=0.2", "lenet5"};
constexpr std::string_view kImages[] = {"alexnet:classes=10,image=63,width=32",
                                        "alexnet:classes=10,image=63,width=32,original=1",
                                        "vgg11:classes=10,image=32,width=32,batch_norm=1",
                                        "vgg13:classes=10,image=32,width=32",
                                        "vgg16:classes=10,image=32,width=32",
                                        "vgg19:classes=10,image=32,width=32",
                                        "squeezenet1_0:classes=10,image=32",
                                        "squeezenet1_1:classes=10,image=32",
                                        "mobilenet_v2:classes=10,image=32",
                                        "inception_v3:classes=10,image=75",
                                        "unet:image=64,B=2,C=4",
                                        "east:image=32"};
constexpr std::string_view kBlocks[] = {
    "resnet18:classes=10,image=32,width=8",       "resnet34:classes=10,image=32,width=8",
    "resnet50:classes=10,image=32,width=4",       "resnet101:classes=10,image=32,width=4",
    "resnet152:classes=10,image=32,width=4",      "resnext50:classes=10,image=32,width=16",
    "resnext101:classes=10,image=32,width=8",     "wide_resnet50:classes=10,image=32,width=4",
    "wide_resnet101:classes=10,image=32,width=4", "densenet121:classes=10,image=32,growth=4",
    "amoebanet_d:classes=10,image=32,L=3,D=16"};
constexpr std::string_view kLanguage[] = {
    "transformer:layers=2,width=16,heads=2,vocabulary=13,sequence=8",
    "transformer_encoder:layers=2,width=16,heads=2,hidden=24,vocabulary=13,sequence=8,classes=5",
    "bert_base:layers=2,width=16,heads=2,vocabulary=13,sequence=8",
    "bert_large:layers=1,width=16,heads=4,vocabulary=13,sequence=8",
    "bert_48:layers=3,width=8,heads=1,vocabulary=13,sequence=8,tied=0",
    "gpt2:layers=2,width=16,heads=2,vocabulary=13,sequence=8",
    "gpt2_medium:layers=1,width=16,heads=4,vocabulary=13,sequence=8",
    "gpt2_large:layers=1,width=20,heads=2,vocabulary=13,sequence=8",
    "gpt2_xl:layers=1,width=25,heads=5,vocabulary=13,sequence=8",
    "t5_small:layers=2,width=16,heads=2,hidden=24,vocabulary=13,source=9,target=7"};
constexpr std::string_view kRecurrent[] = {"gnmt:layers=3,width=8,vocabulary=13,source=5,target=4",
                                           "awd_lstm:width=8,hidden=12,vocabulary=13,sequence=6",
                                           "s2vt:frames=4,features=10,width=6,hidden=8,vocabulary=13,words=3"};

bool all_finite(const Outcome& outcome) {
  return std::all_of(outcome.gradients.begin(), outcome.gradients.end(), [](const auto& layer) {
    return std::all_of(layer.begin(), layer.end(), [](const at::Tensor& gradient) {
      return gradient.defined() && gradient.isfinite().all().item<bool>();
    });
  });
}

void check_family(std::string_view spec) {
  CAPTURE(spec);
  const ResolvedModel model = resolve(build_family(spec));
  const Job job{.model = &model, .micro_batches = {3, 2}};
  CHECK(wrong_shape(job) == "");
  const Outcome whole = run_stages(job, cut_at(model, {}));
  CHECK(all_finite(whole));
  const int n = model.layer_count();
  CHECK(difference(whole, run_stages(job, cut_at(model, {n / 4, n / 2, n - 2}))) == "");
  CHECK(difference(whole, run_stages(job, cut_at(model, {n / 3}), Halves::apart)) == "");
}

/// With channels last the bits are those of every cut, and to rounding those of contiguous tensors. Returns
/// whether any weight lies otherwise than there.
bool check_channels_last(std::string_view spec) {
  CAPTURE(spec);
  const ResolvedModel model = resolve(build_family(spec));
  Job job{.model = &model, .micro_batches = {3, 2}, .format = MemoryFormat::channels_last};
  const Outcome whole = run_stages(job, cut_at(model, {}));
  const int n = model.layer_count();
  CHECK(difference(whole, run_stages(job, cut_at(model, {n / 4, n / 2, n - 2}))) == "");
  CHECK(difference(whole, run_stages(job, cut_at(model, {n / 3}), Halves::apart, {n / 3, n - 1})) == "");
  job.dtype = DType::float64;
  job.micro_batches = {12};  // a norm over 3 samples of 1x1 would blow up what is rounded
  const Outcome last = run_stages(job, cut_at(model, {}));
  job.format = MemoryFormat::contiguous;
  CHECK(largest_difference(last, run_stages(job, cut_at(model, {}))) < 1e-6);  // resnet152: 2e-8
  return std::ranges::any_of(last.gradients, [](const auto& layer) {
    return std::ranges::any_of(layer, [](const at::Tensor& sum) { return !sum.is_contiguous(); });
  });
}

}  // namespace

// Shapes as inferred, finite gradients for every parameter, the same bits whole, in four segments, and in two
// with backward in halves.
TEST_SUITE("libprofile/model/families_run") {
  TEST_CASE("plain networks train alike whole and cut") {
    for (const std::string_view spec : kPlain) check_family(spec);
  }
  TEST_CASE("image networks train alike whole and cut") {
    for (const std::string_view spec : kImages) check_family(spec);
  }
  TEST_CASE("networks of many blocks train alike whole and cut") {
    for (const std::string_view spec : kBlocks) check_family(spec);
  }
  TEST_CASE("transformers train alike whole and cut") {
    for (const std::string_view spec : kLanguage) check_family(spec);
  }
  TEST_CASE("recurrent networks train alike whole and cut") {
    for (const std::string_view spec : kRecurrent) check_family(spec);
  }

  TEST_CASE("with channels last, networks of images train alike whole and cut") {
    for (const std::string_view spec : kImages) CHECK(check_channels_last(spec));
    for (const std::string_view spec : kBlocks) CHECK(check_channels_last(spec));
    CHECK_FALSE(check_channels_last(kPlain[0]));
    CHECK_FALSE(check_channels_last(kLanguage[0]));
  }

  TEST_CASE("every family is run by one of these cases") {
    for (const FamilyRow& row : family_table()) {
      CAPTURE(row.name);
      const auto is_family = [&](std::string_view spec) { return spec.substr(0, spec.find(':')) == row.name; };
      const auto in = [&](const auto& list) {
        return std::any_of(std::begin(list), std::end(list), is_family);
      };
      CHECK((in(kPlain) || in(kImages) || in(kBlocks) || in(kLanguage) || in(kRecurrent)));
    }
  }
}
