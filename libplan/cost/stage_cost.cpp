#include "libplan/cost/stage_cost.h"

namespace pp::plan {

int device_count(const Partition& partition) {
  int devices = 0;
  for (const StageRange& stage : partition) devices += stage.replicas;
  return devices;
}

std::vector<int> replicas_of(const Partition& partition) {
  std::vector<int> replicas;
  for (const StageRange& stage : partition) replicas.push_back(stage.replicas);
  return replicas;
}

std::vector<int> cuts_of(const Partition& partition) {
  std::vector<int> cuts;
  for (const StageRange& stage : partition) {
    if (stage.begin != 0) cuts.push_back(stage.begin);
  }
  return cuts;
}

}  // namespace pp::plan
