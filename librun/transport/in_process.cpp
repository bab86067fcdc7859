#include <ATen/Parallel.h>

#include <algorithm>
#include <string>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/device/compute_device.h"
#include "libprofile/device/queued_work.h"
#include "librun/threads/message_queue.h"
#include "librun/transport/collectives.h"
#include "librun/transport/slice_sum.h"
#include "librun/transport/transport.h"

namespace pp::run {

namespace {

/// A tensor; on a CUDA device also when it is complete.
struct Message {
  at::Tensor tensor;
  std::unique_ptr<profile::DeviceEvent>
      ready;  ///< made with the first such tensor, by the channel's only sender
};

class InProcessTransport : public Transport {
 public:
  InProcessTransport(Coordinator& coordinator, std::vector<Channel> channels) : channels_(std::move(channels)) {
    for (const Channel& channel : channels_) {
      queues_.push_back(
          std::make_unique<MessageQueue<Message>>(coordinator, channel.from, channel.to, channel.window));
    }
  }

  void expect(int /*channel*/, std::int64_t /*number*/, int /*rows*/) override {}

  void send(int channel, std::int64_t number, at::Tensor tensor) override {
    const auto c = static_cast<std::size_t>(channel);
    queues_[c]->put(
        number,
        [&](Message& message) {
          message.tensor = std::move(tensor);
          if (!message.tensor.is_cuda()) return;
          if (!message.ready)
            message.ready = profile::make_event(message.tensor.device(), profile::Timing::off);
          message.ready->record();
        },
        [&] {
          return "worker " + std::to_string(pp::number(channels_[c].to)) + " to make room for " +
                 describe(channels_[c], number);
        });
  }

  at::Tensor receive(int channel, std::int64_t number) override {
    const auto c = static_cast<std::size_t>(channel);
    return queues_[c]->take(
        number,
        [](Message& message) {
          if (message.tensor.is_cuda()) message.ready->hold_back(message.tensor.device());
          return std::move(message.tensor);
        },
        [&] { return describe(channels_[c], number); });
  }

 private:
  std::vector<Channel> channels_;
  std::vector<std::unique_ptr<MessageQueue<Message>>> queues_;  ///< per channel
};

// What the members of one group see of each other.
struct Meeting {
  Meeting(Coordinator& coordinator, Group group)
      : members(std::move(group)), barrier(coordinator, members.size()), parts(members.size()) {}

  std::size_t place_of(WorkerId worker) const {
    return static_cast<std::size_t>(std::ranges::find(members, worker) - members.begin());
  }

  Group members;
  Barrier barrier;
  Collectives::Parts parts;  ///< written before a barrier, read until the next
};

class InProcessCollectives : public Collectives {
 public:
  InProcessCollectives(Coordinator& coordinator, std::vector<Group> groups) {
    for (Group& group : groups) meetings_.push_back(std::make_unique<Meeting>(coordinator, std::move(group)));
  }

  Seconds sum(std::size_t group, WorkerId me, const at::Tensor& mine) override {
    return together(group, me, mine, [&](const Parts& parts, std::size_t place) {
      if (!mine.defined()) return;
      add_slice(parts, equal_slices(mine.numel(), parts.size())[place], Towards::all);
    });
  }

  Seconds reduce(std::size_t group, WorkerId me, const at::Tensor& mine,
                 std::span<const Slice> slices) override {
    return together(group, me, mine, [&](const Parts& parts, std::size_t place) {
      for (const Slice& slice : slices) {
        if (slice.owner == place) add_slice(parts, slice, Towards::owner);
      }
    });
  }

  Seconds spread(std::size_t group, WorkerId me, const at::Tensor& mine,
                 std::span<const Slice> slices) override {
    return together(group, me, mine, [&](const Parts& parts, std::size_t place) {
      for (const Slice& slice : slices) {
        if (slice.owner == place) continue;
        const auto part = [&](const at::Tensor& vector) {
          return vector.narrow(0, slice.begin, slice.length());
        };
        part(mine).copy_(profile::brought_to(mine.device(), part(parts[slice.owner].front())));
      }
      profile::wait_for(mine.device());
    });
  }

  // There is nobody to add beside the members.
  bool overlaps(std::size_t) const override { return false; }
  std::unique_ptr<PendingSum> begin_sum(std::size_t, WorkerId, const at::Tensor&) override {
    throw Error(ErrorKind::internal, "a sum within a process is begun");
  }
  std::unique_ptr<PendingSum> begin_reduce(std::size_t group, WorkerId me, const at::Tensor& mine,
                                           std::span<const Slice>) override {
    return begin_sum(group, me, mine);
  }

  void gather(std::size_t group, WorkerId me, std::vector<at::Tensor> mine,
              const std::function<void(const Parts&)>& use) override {
    Meeting& meeting = *meetings_[group];
    const std::size_t place = meeting.place_of(me);
    meeting.parts[place] = std::move(mine);
    meeting.barrier.arrive_and_wait(me, kOtherMembers);
    use(meeting.parts);
    meeting.barrier.arrive_and_wait(me, kOtherMembers);
    meeting.parts[place].clear();
  }

 private:
  /// Whose vectors get a slice's sum.
  enum class Towards { all, owner };

  /// Between two meetings of all members; returns the seconds of `work(parts, place)`.
  template <class Work>
  Seconds together(std::size_t group, WorkerId me, const at::Tensor& mine, Work&& work) {
    Meeting& meeting = *meetings_[group];
    const std::size_t place = meeting.place_of(me);
    meeting.parts[place] = {mine};
    meeting.barrier.arrive_and_wait(me, kOtherMembers);
    const auto start = Coordinator::Clock::now();
    work(std::as_const(meeting.parts), place);
    const Seconds elapsed = Coordinator::Clock::now() - start;
    meeting.barrier.arrive_and_wait(me, kOtherMembers);
    meeting.parts[place].clear();
    return elapsed;
  }

  /// Nobody else touches this slice of any vector.
  static void add_slice(const Parts& parts, const Slice& slice, Towards towards) {
    const std::int64_t most = piece_length(parts.front().front().device(), slice.length());
    for (std::int64_t first = slice.begin; first < slice.end; first += most)
      add_piece(parts, {slice.owner, first, std::min(first + most, slice.end)}, towards);
    for (const std::vector<at::Tensor>& part : parts) profile::wait_for(part.front().device());
  }

  /// On a CPU so little that what was read to be added is still in the cache when the sum is written there.
  static std::int64_t piece_length(const at::Device& device, std::int64_t slice) {
    constexpr std::int64_t kPerThread = 1 << 15;
    return device.is_cpu() ? kPerThread * at::get_num_threads() : slice;
  }

  /// On the device of the slice's owner, so that every device adds its slice and no link carries all of them.
  static void add_piece(const Parts& parts, const Slice& slice, Towards towards) {
    const auto piece = [&](std::size_t i) { return parts[i].front().narrow(0, slice.begin, slice.length()); };
    const at::Device device = parts[slice.owner].front().device();
    const at::Tensor sum = add_in_order(  // in place of the first where it is there already
        parts.size(), [&](std::size_t i) { return profile::brought_to(device, piece(i)); });
    const bool in_place = parts.front().front().device() == device;
    for (std::size_t i = in_place ? 1 : 0; i < parts.size(); ++i) {
      if (towards == Towards::all || i == slice.owner) piece(i).copy_(sum);
    }
  }

  std::vector<std::unique_ptr<Meeting>> meetings_;
};

}  // namespace

std::unique_ptr<Transport> make_in_process_transport(Coordinator& coordinator, std::vector<Channel> channels) {
  return std::make_unique<InProcessTransport>(coordinator, std::move(channels));
}

std::unique_ptr<Collectives> make_in_process_collectives(Coordinator& coordinator, std::vector<Group> groups) {
  return std::make_unique<InProcessCollectives>(coordinator, std::move(groups));
}

}  // namespace pp::run
