#include "librun/swap/swapper.h"

#include <exception>
#include <optional>
#include <string>

#include "libprofile/core/error.h"
#include "libprofile/device/compute_device.h"
#include "librun/stage/host_memory.h"
#include "librun/swap/residency.h"

namespace pp::run {

namespace {

Bytes bytes_of(const std::vector<Copier::Copy>& copies) {
  std::int64_t sum = 0;
  for (const Copier::Copy& copy : copies) sum += static_cast<std::int64_t>(copy.to.nbytes());
  return Bytes(sum);
}

}  // namespace

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

Swapper::Swapper(Coordinator& run, HostStore& store, const plan::Plan& plan, WorkerId worker, at::Device device,
                 SwapRecord& record)
    : run_(run),
      store_(store),
      plan_(plan),
      worker_(worker),
      device_(device),
      record_(record),
      copier_(run, worker, device) {}

void Swapper::adopt(StageId id, Stage& stage, std::int64_t updates) {
  if (home_of(plan_, id, worker_) == worker_) {
    HostStore::Tensors& copy = store_.weights(id, worker_);
    for (const at::Tensor& tensor : stage.swapped()) copy.push_back(copied_to_host(tensor, host_));
    store_.publish(id, worker_, updates);
  }
  stage.hold(Stage::Hold::nothing);
}

// The optimizer's state, which stands behind the weights, is only there from the first update on.
void Swapper::load(StageId id, Stage& stage, std::int64_t updates, Stage::Hold hold) {
  store_.await(id, worker_, updates);
  stage.hold(hold);
  const std::vector<at::Tensor> here = stage.swapped();
  const HostStore::Tensors& there = store_.weights(id, worker_);
  std::vector<Copier::Copy> copies;
  for (std::size_t i = 0; i < here.size(); ++i) copies.push_back({here[i], there[i]});
  const Bytes bytes = bytes_of(copies);
  under_way_[id] = copier_.begin(std::move(copies), [this, bytes, counts = counts_](Seconds time) {
    if (counts) record_.in.add(bytes, time);
  });
}

void Swapper::await(StageId id) {
  const auto found = under_way_.find(id);
  if (found == under_way_.end()) return;
  copier_.await(found->second);
  under_way_.erase(found);
}

void Swapper::write_back(StageId id, Stage& stage, std::int64_t updates) {
  HostStore::Tensors& there = store_.weights(id, worker_);
  std::vector<Copier::Copy> copies;
  for (const at::Tensor& tensor : stage.swapped()) {
    if (copies.size() == there.size()) there.push_back(room_on_host(tensor, host_));
    const std::size_t i = copies.size();
    copies.push_back({there[i], tensor});
  }
  const Bytes bytes = bytes_of(copies);
  under_way_[id] = copier_.begin(std::move(copies), [this, bytes, id, updates](Seconds time) {
    record_.out.add(bytes, time);
    store_.publish(id, worker_, updates);
  });
}

void Swapper::evict(StageId id, Stage& stage) {
  await(id);
  stage.hold(Stage::Hold::nothing);
}

void Shelf::put(const Key& key, at::Tensor tensor) {
  items_[key] = {std::move(tensor)};
  here_.push_back(key);
}

void Shelf::to_host(const profile::MemoryAccount& host) {
  for (const Key& key : here_) {
    const auto found = items_.find(key);
    if (found == items_.end()) continue;  // taken
    found->second.on_host = copied_to_host(found->second.tensor, host);
    found->second.tensor.reset();
  }
  here_.clear();
}

Shelf::Item Shelf::take(const Key& key, const at::Device& device) {
  auto node = items_.extract(key);
  if (node.empty())
    throw Error(ErrorKind::internal, "message " + std::to_string(std::get<2>(key)) + " to itself was not sent");
  Item item = std::move(node.mapped());
  if (!item.tensor.defined()) item.tensor = copied_to_device(item.on_host, device);
  return item;
}

}  // namespace pp::run
