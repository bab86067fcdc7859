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
    const std::int64_t size = parts.front().front().numel();
    const auto count = static_cast<std::int64_t>(parts.size()), me = static_cast<std::int64_t>(place);
    const std::int64_t first = me * size / count, length = (me + 1) * size / count - first;
    const auto slice = [&](const std::vector<at::Tensor>& part) {
      return part.front().narrow(0, first, length);
    };
    at::Tensor sum = slice(parts.front());
    for (std::size_t i = 1; i < parts.size(); ++i) sum.add_(slice(parts[i]).to(sum.device()));
    for (std::size_t i = 1; i < parts.size(); ++i) slice(parts[i]).copy_(sum);
    for (const std::vector<at::Tensor>& part : parts) profile::wait_for(part.front().device());
  }

  std::vector<std::unique_ptr<Meeting>> meetings_;
};

}  // namespace

std::unique_ptr<Collectives> make_in_process_collectives(Coordinator& coordinator, std::vector<Group> groups) {
  return std::make_unique<InProcessCollectives>(coordinator, std::move(groups));
}

}  // namespace pp::run
