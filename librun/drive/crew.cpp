#include "librun/drive/crew.h"

#include "libprofile/device/compute_device.h"

namespace pp::run {

Crew::Crew(Job& job, Threads::Start start) : job_(job), threads_(std::move(start)) {
  std::vector<at::Device> devices;
  for (const WorkerId id : job.workers_here()) {
    const Device& device = job.setup.devices[index(id)];
    devices.push_back(profile::tensor_device(device.kind, device.index));
  }
  profile::open_devices(devices);
  for (const WorkerId id : job.workers_here()) workers_.push_back(std::make_unique<Worker>(job, id));
  try {
    for (const auto& worker : workers_) threads_.add([&worker = *worker] { worker.run(); });
  } catch (...) {
    job_.coordinator.stop(std::current_exception());
    throw;
  }
}

Crew::~Crew() {
  job_.coordinator.stop(nullptr);
  join();
}

std::optional<WorkerId> Crew::join_within(Seconds most) {
  const std::optional<std::size_t> left = threads_.join_within(most);
  if (!left) return std::nullopt;
  return workers_[*left]->id();
}

}  // namespace pp::run
