#include "librun/swap/host_store.h"

#include <string>

#include "librun/swap/residency.h"

namespace pp::run {

HostStore::HostStore(Coordinator& run, const plan::Plan& plan) : monitor_(run) {
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const StageId stage{static_cast<int>(s)};
    for (const WorkerId worker : plan.stages[s].workers) {
      const Key home{stage, home_of(plan, stage, worker)};
      homes_[{stage, worker}] = home;
      copies_[home];
    }
  }
}

void HostStore::publish(StageId stage, WorkerId home, std::int64_t updates) {
  {
    const Monitor::Lock lock = monitor_.lock();
    copy(stage, home).updates = updates;
  }
  monitor_.notify();
}

void HostStore::await(StageId stage, WorkerId worker, std::int64_t updates) {
  const Copy& wanted = copy(stage, worker);
  Monitor::Lock lock = monitor_.lock();
  monitor_.wait(
      lock, worker, [&] { return wanted.updates >= updates; },
      [&] { return "the weights of stage " + std::to_string(number(stage)) + " on the host"; });
}

void HostStore::stash(StageId stage, std::int64_t micro_batch, Tensors inputs) {
  {
    const Monitor::Lock lock = monitor_.lock();
    stashed_[{stage, micro_batch}] = std::move(inputs);
  }
  monitor_.notify();
}

HostStore::Tensors HostStore::take(WorkerId worker, StageId stage, std::int64_t micro_batch) {
  const std::pair key(stage, micro_batch);
  Monitor::Lock lock = monitor_.lock();
  monitor_.wait(
      lock, worker, [&] { return stashed_.contains(key); },
      [&] { return "the stashed inputs of stage " + std::to_string(number(stage)); });
  return std::move(stashed_.extract(key).mapped());
}

}  // namespace pp::run
