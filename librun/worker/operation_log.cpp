#include "librun/worker/operation_log.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include "libprofile/device/compute_device.h"
#include "libprofile/model/errors.h"
#include "librun/worker/located.h"

namespace pp::run {

namespace {

// Operations that a device may be behind its worker: enough that it never waits for the host, few enough that
// memory which was freed by the host and is still read by the device does not pile up.
constexpr std::size_t kAhead = 16;

constexpr auto kBehind = "its device to have done what it was given";

}  // namespace

OperationLog::OperationLog(Job& job, WorkerId worker, const at::Device& device, WorkerRecord& record)
    : job_(job),
      worker_(worker),
      device_(device),
      record_(record),
      anchor_(job.options.wait_each_operation ? nullptr : profile::make_event(device, profile::Timing::on)),
      monitor_(job.coordinator) {
  constexpr Step kMost = 1 << 16;  // steps whose times are written down without asking for memory
  record_.busy.reserve(static_cast<std::size_t>(std::min(kMost, job.setup.length.total)));
  record_.ops.reserve(2 * least_kept(job, worker));
  ring_.resize(anchor_ ? kAhead : 1);
  if (!anchor_) return;
  for (LoggedOp& op : ring_) {
    op.begun = profile::make_event(device, profile::Timing::on);
    op.done = profile::make_event(device, profile::Timing::on);
  }
  thread_.add([this] { serve(); });
}

OperationLog::~OperationLog() {
  {
    const Monitor::Lock lock = monitor_.lock();
    closed_ = true;
  }
  monitor_.notify();
  thread_.join();
}

void OperationLog::begin_range() {
  flush();
  last_closed_.reset();
  if (!by_thread()) return;
  anchor_->record();
  anchor_->wait();
  anchored_ = Coordinator::Clock::now();
}

void OperationLog::end_range(Step steps) {
  flush();
  if (!job_.setup.streams) {
    close_step();
  } else if (steps > 0) {
    close_times(static_cast<double>(steps));
  }
}

LoggedOp& OperationLog::begin(const Operation& operation, const plan::OpParts& parts) {
  if (by_thread()) {
    Monitor::Lock lock = monitor_.lock();
    monitor_.wait(
        lock, worker_, [&] { return pending_ < ring_.size(); }, [] { return kBehind; });
  }
  LoggedOp& op = current();
  op.op = operation.op;
  op.parts = parts;
  op.step = operation.step;
  op.micro_batch = operation.micro_batch;
  op.updates = false;
  op.gradient_norm.reset();
  op.not_finite.clear();
  op.sent.clear();
  op.has_loss = op.by_events = false;
  if (op.begun) op.begun->record();
  op.begin = Coordinator::Clock::now();
  return op;
}

void OperationLog::add_loss(const at::Tensor& loss, const LossWeight& weight) {
  LoggedOp& op = current();
  op.has_loss = true;
  op.weight = weight;
  if (!by_thread()) {
    op.loss = loss;
    return;
  }
  if (!op.host_loss.defined())
    op.host_loss = at::empty({}, loss.options().device(at::kCPU).pinned_memory(true));
  op.host_loss.copy_(loss, /*non_blocking=*/true);
  op.loss = op.host_loss;
}

void OperationLog::end() {
  LoggedOp& op = current();
  op.by_events = op.done != nullptr;
  if (op.by_events) return op.done->record();
  profile::wait_for(device_);
  op.end = Coordinator::Clock::now();
}

void OperationLog::end(Time begin, Time end) {
  LoggedOp& op = current();
  op.begin = begin;
  op.end = end;
}

void OperationLog::close() {
  if (!by_thread()) {
    current().closed = Coordinator::Clock::now();
    return write(current());
  }
  {
    const Monitor::Lock lock = monitor_.lock();
    next_ = (next_ + 1) % ring_.size();
    ++pending_;
  }
  monitor_.notify();
}

void OperationLog::flush() {
  if (!by_thread()) return;
  Monitor::Lock lock = monitor_.lock();
  monitor_.wait(
      lock, worker_, [&] { return pending_ == 0; }, [] { return kBehind; });
}

void OperationLog::serve() noexcept {
  std::size_t first = 0;
  try {
    Monitor::Lock lock = monitor_.lock();
    while (monitor_.wait_helper(lock, [&] { return closed_ || pending_ > 0; }) && pending_ > 0) {
      lock.unlock();
      located(worker_, ring_[first].op, [&] { write(ring_[first]); });
      job_.coordinator.advanced(worker_);
      lock.lock();
      first = (first + 1) % ring_.size();
      --pending_;
      monitor_.notify();
    }
  } catch (...) {
    job_.coordinator.stop(std::current_exception());
  }
}

// The device's clock counts from the end of the operation before, so that its single precision is enough.
void OperationLog::read_clock(LoggedOp& op) {
  if (!op.by_events) {
    if (by_thread()) op.closed = op.end;
    return;
  }
  const auto at = [&](const profile::DeviceEvent& event) {
    return anchored_ + std::chrono::duration_cast<Coordinator::Clock::duration>(event.since(*anchor_));
  };
  op.done->wait();
  op.begin = at(*op.begun);
  op.end = at(*op.done);
  for (LoggedOp::Sent& message : op.sent) message.begin = message.end = op.end;
  op.closed = op.end;
  anchored_ = op.end;
  std::swap(anchor_, op.done);
}

void OperationLog::write(LoggedOp& op) {
  read_clock(op);
  if (!job_.setup.streams && step_ != op.step) close_step();
  step_ = op.step;
  const Seconds begin = op.begin - job_.start, end = op.end - job_.start;
  busy_ += end - begin;
  write_parts(op);
  record_.op_times[{op.op.kind, op.op.stage}].add(end - begin);
  record_.ops.push_back({{worker_, op.op, begin, end}, op.step, op.peak, op.held});
  for (const LoggedOp::Sent& message : op.sent) {
    record_.sent += message.bytes;
    record_.messages.push_back(
        {{worker_, message.to, op.op, message.bytes, message.begin - job_.start, message.end - job_.start},
         op.step});
  }
  forget_old_events();
  write_loss(op);
  figures_.join({end - begin, op.peak, op.gradient_norm, begin, op.not_finite});
  if (op.updates) job_.ledger.updated(op.step, worker_, op.end, std::exchange(figures_, {}));
}

// From the end of the operation before to the end of this one, so that those of a worker add up to its step.
void OperationLog::write_parts(const LoggedOp& op) {
  const auto add = [&](plan::InstructionKind kind, Time from, Time to) {
    if (to > from) parts_[{kind, op.op.stage}] += to - from;
  };
  if (last_closed_) add(op.parts.waits, *last_closed_, op.begin);
  add(op.parts.works, op.begin, op.end);
  add(op.parts.behind, op.end, op.closed);
  last_closed_ = op.closed;
}

void OperationLog::write_loss(LoggedOp& op) {
  if (!op.has_loss) return;
  const double loss = op.loss.item<double>();
  op.loss.reset();
  if (!std::isfinite(loss) && !op.weight.empty() && !infinite_loss_) infinite_loss_ = op.micro_batch;
  job_.ledger.loss(op.step, op.micro_batch, loss, op.weight.own);
}

void OperationLog::close_step() {
  if (step_) close_times(1);
  step_.reset();
}

void OperationLog::close_times(double steps) {
  keep_last(record_.busy, std::exchange(busy_, Seconds(0)) / steps);
  for (auto& [key, time] : parts_) record_.instruction_times[key].add(std::exchange(time, Seconds(0)) / steps);
}

std::size_t least_kept(const Job& job, WorkerId worker) {
  constexpr std::size_t kSteps = 4, kMiniBatches = 32;
  const plan::Stream& stream = job.streams[index(worker)];
  const auto period = static_cast<std::size_t>(stream.period);
  const auto micro_batches = static_cast<std::size_t>(job.plan.training.micro_batches);
  return job.setup.streams ? kMiniBatches * stream.body.size() * micro_batches / period
                           : kSteps * stream.body.size();
}

// Only the last steps are shown; the events of a long run would fill the memory.
void OperationLog::forget_old_events() {
  const std::size_t least = least_kept(job_, worker_);
  if (record_.ops.size() < 2 * least) return;
  record_.ops.erase(record_.ops.begin(), record_.ops.end() - static_cast<std::ptrdiff_t>(least));
  const Seconds oldest = record_.ops.front().event.start;
  std::erase_if(record_.messages, [&](const MessageRecord& message) { return message.event.start < oldest; });
}

}  // namespace pp::run
