// What a worker writes down of its operations and hands in to the driver: on a CPU when they return, on a CUDA
// device, which works behind the host, by a thread of its own when the device has done them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/device/queued_work.h"
#include "librun/report/record.h"
#include "librun/threads/threads.h"
#include "librun/wiring/cursor.h"
#include "librun/worker/data_feed.h"
#include "librun/worker/job.h"

namespace pp::run {

/// An operation of training. Set by the worker between begin() and close().
struct LoggedOp {
  using Time = Coordinator::Clock::time_point;

  struct Sent {
    WorkerId to{};
    Bytes bytes;
    Time begin, end;
  };

  plan::Op op;
  Step step = 0;
  int micro_batch = 0;  ///< within the step
  Bytes peak;           ///< from the end of the operation before, what it receives included
  Bytes held;           ///< after it
  bool updates = false;
  std::optional<double> gradient_norm;
  std::string not_finite;  ///< why it makes no update
  std::vector<Sent> sent;

 private:
  friend class OperationLog;
  plan::OpParts parts;
  Time begin, end;
  Time closed;  ///< as `end` where a device works behind the host
  bool has_loss = false, by_events = false;
  LossWeight weight;
  at::Tensor loss, host_loss;
  std::unique_ptr<profile::DeviceEvent> begun, done;  ///< null where the host waits
};

/// Made and destroyed on its worker's thread, after it has entered its device.
class OperationLog {
 public:
  using Time = LoggedOp::Time;

  /// Both must outlive it. Of `record` it writes busy, op_times, instruction_times, sent, ops and messages;
  /// they may be read after flush().
  OperationLog(Job& job, WorkerId worker, const at::Device& device, WorkerRecord& record);
  ~OperationLog();
  OperationLog(const OperationLog&) = delete;
  OperationLog& operator=(const OperationLog&) = delete;

  /// Nothing is under way: the device's clock is compared with the host's.
  void begin_range();
  /// Of `steps` steps. Returns when all of it is written down.
  void end_range(Step steps);

  /// The operation's work begins, what it receives is there, or will be before anything that is handed to the
  /// device from now on. Blocks while the device is kAhead operations behind.
  LoggedOp& begin(const Operation& operation, const plan::OpParts& parts);
  LoggedOp& current() { return ring_[next_]; }
  /// Mean loss of the operation's pass, and what it weighs; before end().
  void add_loss(const at::Tensor& loss, const LossWeight& weight);
  /// All of the operation's work has been handed to the device. Where the host waits, it does so here.
  void end();
  /// The same of work that the host has waited for and timed.
  void end(Time begin, Time end);
  /// Nothing more is known of the operation.
  void close();

  /// Blocks until all that was closed is written down.
  void flush();
  /// The first micro-batch since the last call whose loss counts and is not finite; after flush().
  std::optional<int> take_infinite_loss() { return std::exchange(infinite_loss_, std::nullopt); }

 private:
  /// Whether a thread writes, behind the worker, which then leaves anchor_ to it.
  bool by_thread() const { return ring_.size() > 1; }
  void serve() noexcept;
  void write(LoggedOp& op);
  void read_clock(LoggedOp& op);
  void write_loss(LoggedOp& op);
  void write_parts(const LoggedOp& op);
  void close_step();
  /// Enters what was done since the last call, as so many steps.
  void close_times(double steps);
  void forget_old_events();

  Job& job_;
  WorkerId worker_;
  at::Device device_;
  WorkerRecord& record_;
  std::vector<LoggedOp> ring_;  ///< one where the host waits
  std::size_t next_ = 0;        ///< the worker's

  // Of whoever writes.
  std::unique_ptr<profile::DeviceEvent> anchor_;  ///< reached at this time; null where the host waits
  Time anchored_;
  std::optional<Step> step_;  ///< of synchronous programs: that of busy_
  Seconds busy_{};            ///< since the last entry of the record
  std::map<std::pair<plan::InstructionKind, StageId>, Seconds> parts_;  ///< as busy_
  std::optional<Time> last_closed_;                                     ///< of the range's operations
  StepFigures figures_;                                                 ///< since the last update
  std::optional<int> infinite_loss_;

  Monitor monitor_;  ///< of what follows
  std::size_t pending_ = 0;
  bool closed_ = false;
  Threads thread_;
};

/// Operations of the last steps that a worker's record keeps, at least.
std::size_t least_kept(const Job& job, WorkerId worker);

}  // namespace pp::run
