// Tensors of files by name: whole ones, rows of several, to memory of any type and format.
#include "librun/checkpoint/weights.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include "libprofile/core/error.h"
#include "libprofile/device/memory_meter.h"
#include "tests/librun/folder.h"
#include "tests/librun/model_alone.h"
#include "tests/support/torch_test.h"

namespace weights_test {

using namespace pp;
using namespace pp::run;

namespace {

at::Tensor numbers(at::IntArrayRef shape) {
  return at::arange(c10::multiply_integers(shape), at::kFloat).mul(0.25).view(shape);
}

}  // namespace

TEST_SUITE("librun/checkpoint/weights") {
  TEST_CASE("tensors are read by name, rows of one are one, to memory of any type and format") {
    const TestFolder folder;
    const auto file = folder.path() / "w.safetensors";
    const at::Tensor image = numbers({2, 3, 4, 5}), rows = numbers({10, 2});
    // Out of order: by name, [2:10] stands behind [10:12].
    pp::test::write_tensors(file, {{"image", image},
                                   {"fc.exp_avg[10:12]", rows.narrow(0, 0, 2).add(100).contiguous()},
                                   {"fc.exp_avg[2:10]", rows.narrow(0, 2, 8).contiguous()},
                                   {"fc.exp_avg[0:2]", rows.narrow(0, 0, 2).contiguous()}});
    const StoredTensors stored{SafetensorsFile(file)};
    CHECK(stored.contains("image"));
    CHECK(stored.contains("fc.exp_avg"));
    CHECK_FALSE(stored.contains("fc.exp_avg[0:2]"));
    CHECK_THROWS_WITH_AS(stored.read("fc"), "fc: is not stored", Error);
    CHECK_FALSE(StoredTensors().contains("image"));
    CHECK(stored.read("image").equal(image));
    const at::Tensor whole = stored.read("fc.exp_avg");
    REQUIRE(whole.sizes() == at::IntArrayRef{12, 2});
    CHECK(whole.narrow(0, 0, 10).equal(rows));
    CHECK(whole.narrow(0, 10, 2).equal(rows.narrow(0, 0, 2).add(100)));
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
      for (const at::MemoryFormat format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
        const at::Tensor to = at::zeros({2, 3, 4, 5}, type).contiguous(format);
        stored.read_to("image", to);
        CHECK(to.equal(image.to(type)));
      }
    }
    const at::Tensor to = at::zeros({12, 2});
    stored.read_to("fc.exp_avg", to);
    CHECK(to.equal(whole));
  }

  TEST_CASE("a worker with a limit is not charged for what is read") {
    profile::install_memory_meter();
    const TestFolder folder;
    const auto file = folder.path() / "w.safetensors";
    pp::test::write_tensors(file, {{"a", numbers({1000})}});
    const StoredTensors stored{SafetensorsFile(file)};
    const profile::MemoryAccount account(Bytes(2500));
    const profile::ChargeMemory charged(account);
    const at::Tensor half = at::zeros({1000}, at::kBFloat16);
    stored.read_to("a", half);
    CHECK(account.peak().value == 2000);
    CHECK(half[4].item<double>() == 1);
  }
}

}  // namespace weights_test
