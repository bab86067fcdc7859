// A stream on five stages with many different replica counts: its round robin repeats after their least common
// multiple.
#pragma once

#include <numeric>
#include <variant>
#include <vector>

#include "libplan/answer/make_plan.h"
#include "tests/libplan/search/profiles.h"

namespace pp::plan::test {

/// One layer a stage: 3, 5.1, 5.2, 3.8 and 3.9 ms, up to 2.5 MB of weights, links of 1 TB/s.
inline Plan many_turns(const std::vector<int>& replicas) {
  const Profile profile = make_profile({{{1, 2, 0, 1'000'000, 1'000'000},
                                         {1.6, 3.5, 2'500'000, 1'600'000, 1'600'000},
                                         {2.2, 3, 2'000'000, 1'500'000, 1'500'000},
                                         {1.3, 2.5, 1'500'000, 1'400'000, 1'400'000},
                                         {1.9, 2, 1'000'000, 1'300'000, 1'300'000}},
                                        {},
                                        {1}});
  const int devices = std::accumulate(replicas.begin(), replicas.end(), 0);
  PlanRequest request;
  request.schedule = "pipedream";
  request.mini_batch = 1;
  request.micro_batches = 1;
  request.cuts = {1, 2, 3, 4};
  request.replicas = replicas;
  const Cluster cluster = flat_cluster(devices, DeviceKind::cpu, BytesPerSecond(1e12), Seconds(0), Bytes(0));
  return std::get<Plan>(make_plan(profile, cluster, request));
}

}  // namespace pp::plan::test
