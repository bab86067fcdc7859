// `kernels` of profiles and plans.
#include "libprofile/core/kernel_choice.h"

#include <nlohmann/json.hpp>

#include "libprofile/core/shared_fields.h"
#include "tests/support/doctest.h"

namespace kernel_choice_test {
namespace {

using pp::Kernel;
using pp::KernelChoice;
using pp::KernelTask;
using pp::Seconds;

const std::vector<KernelChoice> kChoices{
    {{KernelTask::product, pp::DType::float32, pp::ProductLayout::nt, {5, 7, 3}},
     Kernel::onednn,
     std::array{Seconds(2e-3), Seconds(1e-3)}},
    {{KernelTask::batched_product, pp::DType::bfloat16, pp::ProductLayout::tn, {5, 7, 3, 4}}, Kernel::mkl, {}},
    // 2 samples of 3 channels, 8 x 6; 4 channels by kernels of 3 x 1, padded by 1 and 0; stride 2.
    {{KernelTask::convolution, pp::DType::float32, {}, {2, 3, 8, 6, 4, 3, 1, 1, 0, 2, 1}},
     Kernel::product,
     {}}};

/// As profiles and plans hold them.
struct Holder {
  std::vector<KernelChoice> kernels;
};
void sort(Holder& holder, pp::ObjectReader& reader) { pp::sort_kernels(holder.kernels, reader); }
constexpr pp::Object kHolder{
    "holder",
    pp::optional<&Holder::kernels>("kernels", pp::kKernel),
    pp::check<sort>(),
};

std::vector<KernelChoice> read(const pp::Json& json) {
  Holder holder;
  pp::detail::read_object(keys_of(kHolder), json, "", &holder);
  return holder.kernels;
}

pp::Json written(const std::vector<KernelChoice>& choices) { return to_json(kHolder, Holder{choices}); }

/// The first choice with one member set.
pp::Json changed(const std::string& key, const pp::Json& value) {
  pp::Json json = written({kChoices.front()});
  json["kernels"][0][key] = value;
  return json;
}

}  // namespace

TEST_SUITE("libprofile/core/kernel_choice") {
  TEST_CASE("what is written is read, in the order of keys") {
    CHECK(written({}).empty());
    CHECK(read(written({})).empty());
    pp::Json json = written(kChoices);
    CHECK(json["kernels"][0].dump() ==
          R"({"task":"product","dtype":"float32","layout":"nt","sizes":[5,7,3],"kernel":"onednn",)"
          R"("seconds":{"mkl":0.002,"onednn":0.001}})");
    CHECK(read(json) == kChoices);
    std::swap(json["kernels"][0], json["kernels"][2]);
    CHECK(read(json) == kChoices);
  }

  TEST_CASE("what no operation has is refused with its place") {
    CHECK_THROWS_WITH(read(changed("sizes", {5, 7})), "/kernels/0/sizes: has 2 numbers; a product has 3");
    CHECK_THROWS_WITH(read(changed("kernel", "product")),
                      "/kernels/0/kernel: is product; a product takes mkl or onednn");
    CHECK_THROWS(read(changed("task", "sum")));
    CHECK_THROWS(read(changed("sizes", {5, 7, -1})));
    CHECK_THROWS(read(changed("more", 1)));
    pp::Json twice = changed("kernel", "mkl");
    twice["kernels"].push_back(twice["kernels"][0]);
    CHECK_THROWS_WITH(read(twice),
                      "/kernels: has two entries of the same task, type, layout and sizes; keep one");
  }

  TEST_CASE("runs are alike where the kernels are that they take, however they were found") {
    CHECK(pp::effective(kChoices).size() == 2);
    CHECK(!pp::effective(kChoices)[0].measured);
    std::vector<KernelChoice> others = kChoices;
    others[0].measured.reset();
    others.erase(others.begin() + 1);
    CHECK(pp::name_of_kernels(others) == pp::name_of_kernels(kChoices));
    others.pop_back();
    CHECK(pp::name_of_kernels(others) != pp::name_of_kernels(kChoices));
    CHECK(pp::name_of_kernels(std::span(kChoices).subspan(1, 1)) == "usual");
  }

  TEST_CASE("the positions of a convolution's output") {
    // Height (8 + 2 - 3) / 2 + 1 = 4, width (6 - 1) / 2 + 1 = 3, 2 samples.
    CHECK(output_positions(kChoices[2].key) == 24);
  }
}

}  // namespace kernel_choice_test
