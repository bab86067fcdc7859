#include "librun/swap/copier.h"

#include <exception>

#include "libprofile/device/compute_device.h"

namespace pp::run {

Copier::Copier(Coordinator& run, WorkerId worker, at::Device device)
    : run_(run), worker_(worker), device_(device), monitor_(run) {
  thread_.add([this] { live(); });
}

Copier::~Copier() {
  {
    const Monitor::Lock lock = monitor_.lock();
    closed_ = true;
  }
  monitor_.notify();
  thread_.join();
}

Copier::Ticket Copier::begin(std::vector<Copy> copies, Done done) {
  Job job{std::move(copies), std::move(done), profile::make_event(device_, profile::Timing::off)};
  if (job.ready) job.ready->record();
  Ticket ticket = 0;
  {
    const Monitor::Lock lock = monitor_.lock();
    jobs_.push_back(std::move(job));
    ticket = ++begun_;
  }
  monitor_.notify();
  return ticket;
}

void Copier::await(Ticket ticket) {
  Monitor::Lock lock = monitor_.lock();
  monitor_.wait(
      lock, worker_, [&] { return ended_ >= ticket; }, [] { return "weights between host and device"; });
}

void Copier::live() noexcept {
  try {
    profile::enter_device(device_, /*threads=*/1);
    Monitor::Lock lock = monitor_.lock();
    while (monitor_.wait_helper(lock, [&] { return closed_ || !jobs_.empty(); }) && !jobs_.empty()) {
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      run(job);
      job = {};
      run_.advanced(worker_);
      lock.lock();
      ++ended_;
      monitor_.notify();
    }
  } catch (...) {
    run_.stop(std::current_exception());
  }
}

void Copier::run(const Job& job) const {
  const auto begin = Coordinator::Clock::now();
  if (job.ready) job.ready->hold_back(device_);
  for (const Copy& copy : job.copies) copy.to.copy_(copy.from, /*non_blocking=*/true);
  profile::wait_for(device_);
  job.done(Coordinator::Clock::now() - begin);
}

}  // namespace pp::run
