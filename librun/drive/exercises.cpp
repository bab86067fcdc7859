// Exercises of one worker, and the patterns by which their content is compared.
#include "librun/drive/exercises.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "libprofile/core/error.h"
#include "libprofile/core/index.h"
#include "libprofile/core/text.h"
#include "libprofile/device/compute_device.h"
#include "libprofile/measure/statistics.h"
#include "libprofile/model/ops.h"

namespace pp::run {

namespace {

using Time = Coordinator::Clock::time_point;

constexpr int kWarmUp = 2;
/// Whole numbers up to it are exact in every type that tensors between workers have.
constexpr std::int64_t kLargestWhole = 250;

/// first, first + 1, ... modulo `modulus`, on the host.
at::Tensor pattern(const std::vector<std::int64_t>& sizes, at::ScalarType type, std::int64_t first,
                   std::int64_t modulus = kLargestWhole + 1) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  if (type == at::kBool) modulus = 2;
  const at::Tensor period = at::arange(first % modulus, first % modulus + modulus).remainder(modulus);
  return period.to(type).repeat({count / modulus + 1}).narrow(0, 0, count).view(sizes);
}

/// Of a group that adds up: what each member brings, small enough for their sum to be exact.
class Summands {
 public:
  explicit Summands(std::size_t members)
      : bringing_(std::min(static_cast<std::int64_t>(members), kLargestWhole / 2)),
        modulus_(std::max<std::int64_t>(2, kLargestWhole / bringing_)) {}

  at::Tensor of(std::int64_t place, const Exercise& one) const {
    return place < bringing_ ? pattern(one.sizes, one.type, place, modulus_) : at::zeros(one.sizes, one.type);
  }
  at::Tensor sum(const Exercise& one) const {
    at::Tensor sum = of(0, one).clone();
    for (std::int64_t place = 1; place < bringing_; ++place) sum.add_(of(place, one));
    return sum;
  }

 private:
  std::int64_t bringing_, modulus_;
};

template <class What>
void compare(const at::Tensor& arrived, const at::Tensor& expected, const What& what) {
  const auto refuse = [&](const std::string& found) { throw Error(ErrorKind::run, what() + ": " + found); };
  const at::Tensor host = profile::brought_to_host(arrived, arrived.suggest_memory_format());
  if (host.scalar_type() != expected.scalar_type() || host.sizes() != expected.sizes())
    refuse("arrived with another type or shape than it was sent with");
  if (at::equal(host, expected)) return;
  const at::Tensor other = at::ne(host, expected).reshape(-1).nonzero();
  refuse("arrived with another content than it was sent with: " + std::to_string(other.size(0)) + " of " +
         counted(expected.numel(), "element") + ", the first at position " +
         std::to_string(other[0].item<std::int64_t>()) + "; look at the link, and at what lies under it");
}

class Exerciser {
 public:
  Exerciser(const Ways& ways, WorkerId me, const at::Device& device) : ways_(ways), me_(me), device_(device) {}

  /// `times`: of those that are timed.
  void perform(const Exercise& one, std::int64_t* times) {
    for (int round = 0; round < kWarmUp + kTimedExchanges; ++round) {
      const std::int64_t time = one.kind == Exercise::Kind::message ? exchange(one, round) : together(one);
      if (round >= kWarmUp) times[round - kWarmUp] = time;
      ways_.coordinator.advanced(me_);
    }
  }

 private:
  Time now() const {
    profile::wait_for(device_);
    return Coordinator::Clock::now();
  }
  static std::int64_t nanoseconds(Time::duration time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  }
  at::Tensor here(const at::Tensor& tensor) const {
    at::Tensor copy = at::empty(tensor.sizes(), tensor.options().device(device_));
    return copy.copy_(tensor);
  }

  std::int64_t exchange(const Exercise& one, int number) {
    const Channel& channel = ways_.channels[one.number];
    const auto c = static_cast<int>(one.number);
    const bool sends = channel.from == me_, receives = channel.to == me_;
    if (receives) ways_.transport.expect(c, number, static_cast<int>(one.sizes.front()));
    at::Tensor sent;
    const at::Tensor content = sends || receives ? pattern(one.sizes, one.type, 7 * c + number) : at::Tensor();
    if (sends) sent = here(content).contiguous(model::memory_format(channel.format, content.dim()));
    now();
    meet(ways_, me_);
    if (sends) {
      const Time begin = Coordinator::Clock::now();
      ways_.transport.send(c, number, std::move(sent));
      return nanoseconds(ways_.common(begin).time_since_epoch());
    }
    if (!receives) return 0;
    const at::Tensor arrived = profile::brought_to(device_, ways_.transport.receive(c, number));
    const Time end = now();
    compare(arrived, content, [&] {
      return "the " + one.exchange.what + " from worker " + std::to_string(pp::number(channel.from)) +
             " to worker " + std::to_string(pp::number(channel.to));
    });
    return nanoseconds(ways_.common(end).time_since_epoch());
  }

  std::int64_t together(const Exercise& one) {
    const std::vector<WorkerId>& members = one.exchange.workers;
    const auto found = std::ranges::find(members, me_);
    if (found == members.end()) {
      meet(ways_, me_);
      return 0;
    }
    const std::int64_t place = found - members.begin();
    if (one.kind == Exercise::Kind::sum) return sum(one, place);
    return one.kind == Exercise::Kind::shares ? share(one, place) : gather(one, place);
  }

  template <class Body>
  std::int64_t timed(const Body& body) {
    now();
    meet(ways_, me_);
    const Time begin = Coordinator::Clock::now();
    body();
    return nanoseconds(now() - begin);
  }
  auto name(const Exercise& one) const {
    return [&one] { return "the " + one.exchange.what; };
  }

  std::int64_t sum(const Exercise& one, std::int64_t place) {
    const Summands summands(one.exchange.workers.size());
    const at::Tensor vector = here(summands.of(place, one));
    const std::int64_t time = timed([&] { ways_.collectives.sum(one.number, me_, vector); });
    compare(vector, summands.sum(one), name(one));
    return time;
  }

  std::int64_t share(const Exercise& one, std::int64_t place) {
    const Summands summands(one.exchange.workers.size());
    Exercise after = one;
    after.type = one.weights;
    const at::Tensor gradient = here(summands.of(place, one)), weights = here(summands.of(place, after));
    const std::int64_t time = timed([&] {
      ways_.collectives.reduce(one.number, me_, gradient, one.slices);
      ways_.collectives.spread(one.number, me_, weights, one.slices);
    });
    const at::Tensor sum = summands.sum(one);
    for (const Slice& slice : one.slices) {
      const auto owner = static_cast<std::int64_t>(slice.owner);
      if (owner == place) compare(part_of(gradient, slice), part_of(sum, slice), name(one));
      compare(part_of(weights, slice), part_of(summands.of(owner, after), slice), name(one));
    }
    return time;
  }

  std::int64_t gather(const Exercise& one, std::int64_t place) {
    const Summands summands(one.exchange.workers.size());
    const at::Tensor mine = here(summands.of(place, one));
    std::vector<at::Tensor> all;
    const std::int64_t time = timed([&] {
      ways_.collectives.gather(one.number, me_, {mine}, [&](const Collectives::Parts& parts) {
        for (const std::vector<at::Tensor>& part : parts) all.push_back(here(part.front()));
        now();
      });
    });
    for (std::size_t i = 0; i < all.size(); ++i)
      compare(all[i], summands.of(static_cast<std::int64_t>(i), one), name(one));
    return time;
  }

  const Ways& ways_;
  const WorkerId me_;
  const at::Device device_;
};

}  // namespace

at::Tensor exercise(const Ways& ways, WorkerId me, const at::Device& device, std::span<const Exercise> all) {
  at::Tensor times = at::zeros({std::ssize(all), kTimedExchanges}, at::kLong);
  Exerciser exerciser(ways, me, device);
  for (std::size_t i = 0; i < all.size(); ++i)
    exerciser.perform(all[i], times.mutable_data_ptr<std::int64_t>() + i * kTimedExchanges);
  return times;
}

void meet(const Ways& ways, WorkerId me) {
  ways.collectives.gather(ways.everybody, me, {}, [](const Collectives::Parts&) {});
}

void set_measured(std::span<Exercise> all, std::span<const Channel> channels,
                  const std::vector<at::Tensor>& by_worker) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto time = [&](WorkerId worker, int round) {
      const auto* const times = by_worker[index(worker)].const_data_ptr<std::int64_t>();
      return times[i * kTimedExchanges + static_cast<std::size_t>(round)];
    };
    std::array<double, kTimedExchanges> seconds{};
    for (int round = 0; round < kTimedExchanges; ++round) {
      std::int64_t taken = 0;
      if (all[i].kind == Exercise::Kind::message) {
        const Channel& channel = channels[all[i].number];
        taken = std::max<std::int64_t>(0, time(channel.to, round) - time(channel.from, round));
      } else {
        for (const WorkerId worker : all[i].exchange.workers) taken = std::max(taken, time(worker, round));
      }
      seconds[static_cast<std::size_t>(round)] = 1e-9 * static_cast<double>(taken);
    }
    all[i].exchange.measured = profile::summarise(seconds).median;
  }
}

}  // namespace pp::run
