// The link meter of tensors, on CPU devices and, where there are any, on CUDA devices.
#include "librun/links/tensor_links.h"

#include "libprofile/core/error.h"
#include "librun/links/local_links.h"
#include "tests/support/torch_test.h"

#include "tests/support/gpu.h"

namespace tensor_links_test {

using namespace pp;
using namespace pp::run;

namespace {

constexpr LinkSweep kBrief{.smallest = Bytes(1024), .largest = Bytes(4096), .repetitions = 8, .warm_up = 2};

void check_samples(const std::vector<LinkSample>& samples, std::int64_t counted) {
  REQUIRE(samples.size() == 3);  // 1, 2, 4 KiB
  for (std::size_t i = 0; i < samples.size(); ++i) {
    CHECK(samples[i].size == Bytes(1024) * (std::int64_t{1} << i));
    CHECK(samples[i].time.samples == counted);
    CHECK(samples[i].time.median.count() > 0);
  }
}

}  // namespace

TEST_SUITE("librun/links/tensor_links") {
  TEST_CASE("a pair is measured in both directions at every size") {
    check_samples(sample_pair({at::kCPU}, {at::kCPU}, kBrief), 2 * 8);
  }

  TEST_CASE("the all-reduce is measured once per repetition") {
    check_samples(sample_all_reduce({{at::kCPU}, {at::kCPU}, {at::kCPU}}, kBrief), 8);
  }

  TEST_CASE("a device without CUDA ends the measurement with its reason") {
    if (profile::cuda_device_count() > 0) return;
    CHECK_THROWS(sample_pair({at::Device(at::kCUDA, 0)}, {at::kCPU}, kBrief));
  }

  TEST_CASE("a link needs two devices") {
    CHECK_THROWS_WITH_AS(measure_cuda_links(std::vector<int>{0}, kBrief),
                         "devices = 1: a link needs at least 2; cuda:0,cuda:0 are two workers on one device",
                         Error);
  }
}

TEST_SUITE("gpu/librun/links/tensor_links") {
  TEST_CASE("two workers on one device hand over by reference; all-reduce in the same table") {
    PP_NEEDS_CUDA(1);
    const Cluster cluster = measure_cuda_links(std::vector<int>{0, 0}, kBrief);
    REQUIRE(cluster.levels.size() == 1);
    CHECK(cluster.levels[0].name == "process");
    check_samples(cluster.levels[0].samples, 2 * 8);
    REQUIRE(cluster.levels[0].all_reduce.has_value());
    check_samples(cluster.levels[0].all_reduce->samples, 8);
    CHECK(cluster.context.at("link cuda:0 cuda:0") == "by reference");
    CHECK(cluster.devices[1].kind == DeviceKind::cuda);
  }

  TEST_CASE("a copy between two devices takes longer the more it carries") {
    PP_NEEDS_CUDA(2);
    LinkSweep sweep = kBrief;
    sweep.largest = Bytes(64 << 20);
    const Cluster cluster = measure_cuda_links(std::vector<int>{0, 1}, sweep);
    const std::vector<LinkSample>& samples = cluster.levels[0].samples;
    CHECK(samples.back().time.median > samples.front().time.median);
    CHECK(cluster.context.at("link cuda:0 cuda:1") != "by reference");
  }
}

}  // namespace tensor_links_test
