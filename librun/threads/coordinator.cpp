#include "librun/threads/coordinator.h"

#include <algorithm>

namespace pp::run {

namespace {

// An operation in one word, so that it is read whole while its worker goes on.
constexpr std::uint64_t kNone = ~std::uint64_t{0};

std::uint64_t packed(const plan::Op& op) {
  return static_cast<std::uint64_t>(op.kind) << 56 |
         (static_cast<std::uint64_t>(number(op.stage)) & 0xffffff) << 32 |
         static_cast<std::uint32_t>(op.micro_batch);
}

plan::Op unpacked(std::uint64_t word) {
  return {static_cast<plan::OpKind>(word >> 56), StageId{static_cast<int>(word >> 32 & 0xffffff)},
          static_cast<int>(static_cast<std::uint32_t>(word))};
}

}  // namespace

Coordinator::Coordinator(int workers) {
  for (int i = 0; i < workers; ++i) slots_.emplace_back(std::make_unique<Slot>())->op = kNone;
}

void Coordinator::announce(WorkerId worker, const std::optional<plan::Op>& op) {
  if (stopped()) throw Stopped{};
  Slot& slot = *slots_[index(worker)];
  slot.op.store(op ? packed(*op) : kNone, std::memory_order_relaxed);
  slot.progress.fetch_add(1, std::memory_order_relaxed);
}

void Coordinator::advanced(WorkerId worker) {
  slots_[index(worker)]->progress.fetch_add(1, std::memory_order_relaxed);
}

void Coordinator::waits(WorkerId worker, const Reason* why) {
  Slot& slot = *slots_[index(worker)];
  const std::lock_guard held(slot.mutex);
  slot.waiting_for = why;
}

void Coordinator::pause(int asked) {
  constexpr int kAtOnce = 100, kEager = 2000;
  constexpr std::chrono::microseconds kLongest(100);
  if (asked < kAtOnce) return;
  if (asked < kEager) return std::this_thread::yield();
  std::this_thread::sleep_for(std::min(kLongest, std::chrono::microseconds(asked - kEager)));
}

void Coordinator::tell_state(WorkerId worker, std::string state) {
  Slot& slot = *slots_[index(worker)];
  const std::lock_guard held(slot.mutex);
  slot.state_elsewhere = std::move(state);
}

// Under its lock a monitor's waiter either has not looked at the flag yet or is asleep and gets the message.
void Coordinator::stop(std::exception_ptr error) {
  const std::lock_guard held(mutex_);
  if (!error_) error_ = std::move(error);
  stopped_ = true;
  for (Monitor* monitor : monitors_) {
    monitor->lock().unlock();
    monitor->notify();
  }
}

std::exception_ptr Coordinator::error() {
  const std::lock_guard held(mutex_);
  return error_;
}

std::uint64_t Coordinator::progress() const { return here().progress + progress_elsewhere_.load(); }

Coordinator::Elsewhere Coordinator::here() const {
  std::uint64_t sum = phases_ended_.load();
  for (const auto& slot : slots_) sum += slot->progress.load(std::memory_order_relaxed);
  return {sum, phases_.load() > 0};
}

std::string Coordinator::state_of(WorkerId worker) {
  Slot& slot = *slots_[index(worker)];
  const std::uint64_t op = slot.op.load(std::memory_order_relaxed);
  const std::lock_guard held(slot.mutex);
  if (!slot.state_elsewhere.empty()) return slot.state_elsewhere;
  return "worker " + std::to_string(number(worker)) + ": " +
         (op == kNone ? "between steps" : plan::to_text(unpacked(op))) +
         (slot.waiting_for == nullptr ? ", running" : ", waits for " + slot.waiting_for->words());
}

Monitor::Monitor(Coordinator& run) : run_(run) {
  const std::lock_guard held(run_.mutex_);
  run_.monitors_.push_back(this);
}

Monitor::~Monitor() {
  const std::lock_guard held(run_.mutex_);
  std::erase(run_.monitors_, this);
}

Phase::Phase(Coordinator& coordinator) : coordinator_(coordinator) { ++coordinator_.phases_; }

Phase::~Phase() {
  ++coordinator_.phases_ended_;
  --coordinator_.phases_;
}

Barrier::Barrier(Coordinator& coordinator, std::size_t members) : monitor_(coordinator), members_(members) {}

void Barrier::arrive_and_wait(WorkerId worker, const char* what) {
  Monitor::Lock lock = monitor_.lock();
  if (++arrived_ == members_) {
    arrived_ = 0;
    ++generation_;
    lock.unlock();
    monitor_.notify();
    return;
  }
  const long mine = generation_;
  monitor_.wait(
      lock, worker, [&] { return generation_ != mine; }, [&] { return std::string(what); });
}

}  // namespace pp::run
