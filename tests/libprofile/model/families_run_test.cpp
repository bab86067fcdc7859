// The built-in families, in small sizes, through the segment runner.
#include <algorithm>
#include <string_view>

#include "libprofile/model/families/families.h"
#include "tests/libprofile/model/harness.h"
#include "tests/support/small_families.h"
#include "tests/support/torch_test.h"

namespace families_run_test {

using namespace pp;
using namespace pp::model;
using namespace pp::model::test;
using namespace small;

namespace {

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
  TEST_CASE("encoders train alike whole and cut") {
    for (const std::string_view spec : kEncoders) check_family(spec);
  }
  TEST_CASE("decoders train alike whole and cut") {
    for (const std::string_view spec : kDecoders) check_family(spec);
  }
  TEST_CASE("encoders with decoders train alike whole and cut") {
    for (const std::string_view spec : kTranslators) check_family(spec);
  }

  TEST_CASE("with channels last, networks of images train alike whole and cut") {
    for (const std::string_view spec : kImages) CHECK(check_channels_last(spec));
    for (const std::string_view spec : kBlocks) CHECK(check_channels_last(spec));
    CHECK_FALSE(check_channels_last(kPlain[0]));
    CHECK_FALSE(check_channels_last(kDecoders[0]));
  }

  TEST_CASE("every family is run by one of these cases") {
    for (const FamilyRow& row : family_table()) {
      CAPTURE(row.name);
      const auto is_family = [&](std::string_view spec) { return spec.substr(0, spec.find(':')) == row.name; };
      const auto in = [&](const auto& list) {
        return std::any_of(std::begin(list), std::end(list), is_family);
      };
      CHECK((in(kPlain) || in(kImages) || in(kBlocks) || in(kEncoders) || in(kDecoders) || in(kTranslators)));
    }
  }
}

}  // namespace families_run_test
