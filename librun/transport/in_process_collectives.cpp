#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/device/compute_device.h"
#include "librun/transport/collectives.h"

namespace pp::run {

namespace {

constexpr auto kWaiting = "the other workers of an all-reduce";

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
    Meeting& meeting = *meetings_[group];
    const std::size_t place = meeting.place_of(me);
    meeting.parts[place] = {mine};
    meeting.barrier.arrive_and_wait(me, kWaiting);
    const auto start = Coordinator::Clock::now();
    if (mine.defined()) add_slice(meeting.parts, place);
    const Seconds elapsed = Coordinator::Clock::now() - start;
    meeting.barrier.arrive_and_wait(me, kWaiting);
    meeting.parts[place].clear();
    return elapsed;
  }

  // There is nobody to add beside the members.
  bool overlaps(std::size_t) const override { return false; }
  std::unique_ptr<PendingSum> begin_sum(std::size_t, WorkerId, const at::Tensor&) override {
    throw Error(ErrorKind::internal, "a sum within a process is begun");
  }

  void gather(std::size_t group, WorkerId me, std::vector<at::Tensor> mine,
              const std::function<void(const Parts&)>& use) override {
    Meeting& meeting = *meetings_[group];
    const std::size_t place = meeting.place_of(me);
    meeting.parts[place] = std::move(mine);
    meeting.barrier.arrive_and_wait(me, kWaiting);
    use(meeting.parts);
    meeting.barrier.arrive_and_wait(me, kWaiting);
    meeting.parts[place].clear();
  }

 private:
  /// Into every member's vector: nobody else touches this slice.
  static void add_slice(const Parts& parts, std::size_t place) {
    const at::Tensor& vector = parts.front().front();
    const auto count = static_cast<std::int64_t>(parts.size()), me = static_cast<std::int64_t>(place);
    const std::int64_t begin = me * vector.numel() / count, end = (me + 1) * vector.numel() / count;
    const std::int64_t most = piece_length(vector.device(), end - begin);
    for (std::int64_t first = begin; first < end; first += most)
      add_piece(parts, place, first, std::min(most, end - first));
    for (const std::vector<at::Tensor>& part : parts) profile::wait_for(part.front().device());
  }

  /// On a CPU so little that what was read to be added is still in the cache when the sum is written there.
  static std::int64_t piece_length(const at::Device& device, std::int64_t slice) {
    constexpr std::int64_t kPerThread = 1 << 15;
    return device.is_cpu() ? kPerThread * at::get_num_threads() : slice;
  }

  /// On the device of the slice's owner, so that every device adds its slice and no link carries all of them.
  static void add_piece(const Parts& parts, std::size_t owner, std::int64_t first, std::int64_t length) {
    const auto piece = [&](std::size_t i) { return parts[i].front().narrow(0, first, length); };
    const at::Device device = parts[owner].front().device();
    at::Tensor sum = profile::brought_to(device, piece(0));  // itself where it is there already
    for (std::size_t i = 1; i < parts.size(); ++i) sum.add_(profile::brought_to(device, piece(i)));
    const bool in_place = parts.front().front().device() == device;
    for (std::size_t i = in_place ? 1 : 0; i < parts.size(); ++i) piece(i).copy_(sum);
  }

  std::vector<std::unique_ptr<Meeting>> meetings_;
};

}  // namespace

std::unique_ptr<Collectives> make_in_process_collectives(Coordinator& coordinator, std::vector<Group> groups) {
  return std::make_unique<InProcessCollectives>(coordinator, std::move(groups));
}

}  // namespace pp::run
