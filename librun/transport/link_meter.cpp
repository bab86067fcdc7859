#include "librun/transport/link_meter.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "libprofile/core/error.h"
#include "librun/transport/mailbox.h"
#include "librun/worker/thread.h"

namespace pp::run {

namespace {

using Clock = Coordinator::Clock;
using Buffer = std::vector<std::uint64_t>;

struct Letter {
  std::shared_ptr<const Buffer> bytes;
  Clock::time_point sent;
};

// One word of every cache line: the line is what travels.
std::uint64_t read_lines(const Buffer& buffer) {
  constexpr std::size_t kWordsPerLine = 8;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < buffer.size(); i += kWordsPerLine) sum += buffer[i];
  return sum;
}

// Two workers, each with a mailbox, that play ping-pong.
class PingPong {
 public:
  PingPong(std::vector<int> first, std::vector<int> second)
      : coordinator_(2, Seconds(60)), cores_{std::move(first), std::move(second)} {
    for (int i = 0; i < 2; ++i)
      boxes_[i] = std::make_unique<Mailbox<Letter>>(coordinator_, WorkerId{i}, std::vector<int>{2, 2});
  }

  // Seconds of each counted message, both directions.
  std::vector<double> play(Bytes size, int warm_up, int repetitions) {
    std::vector<std::vector<double>> times(2);
    std::thread second([&] { guarded(1, size, warm_up, repetitions, times[1]); });
    std::thread first([&] { guarded(0, size, warm_up, repetitions, times[0]); });
    first.join();
    second.join();
    if (const std::exception_ptr error = coordinator_.error()) std::rethrow_exception(error);
    times[0].insert(times[0].end(), times[1].begin(), times[1].end());
    return times[0];
  }

 private:
  void guarded(int me, Bytes size, int warm_up, int repetitions, std::vector<double>& times) {
    try {
      pin_thread(cores_[me]);
      side(me, size, warm_up, repetitions, times);
    } catch (const Stopped&) {
      return;  // the other side has the error
    } catch (...) {
      coordinator_.stop(std::current_exception());
    }
  }

  void side(int me, Bytes size, int warm_up, int repetitions, std::vector<double>& times) {
    const auto words = static_cast<std::size_t>((size.value + 7) / 8);
    auto mine = std::make_shared<Buffer>(words);
    volatile std::uint64_t keep = 0;  // the reads must not be optimised away
    for (int i = 0; i < warm_up + repetitions; ++i) {
      const Tag there{.consumer = StageId{1}, .micro_batch = i};
      const Tag back{.consumer = StageId{0}, .micro_batch = i};
      if (me == 0) send(me, there, mine, i);
      const Letter letter = boxes_[me]->take(WorkerId{1 - me}, me == 0 ? back : there);
      keep = keep + read_lines(*letter.bytes);
      const Seconds time = Clock::now() - letter.sent;
      if (i >= warm_up) times.push_back(time.count());
      if (me == 1) send(me, back, mine, i);
    }
  }

  // Fresh bytes each time, written on this core, as a layer writes its output.
  void send(int me, const Tag& tag, const std::shared_ptr<Buffer>& mine, int value) {
    std::fill(mine->begin(), mine->end(), static_cast<std::uint64_t>(value));
    boxes_[1 - me]->put(WorkerId{me}, tag, Letter{mine, Clock::now()});
  }

  Coordinator coordinator_;
  std::vector<int> cores_[2];
  std::unique_ptr<Mailbox<Letter>> boxes_[2];
};

// Physical memory, or the limit of the control group when that is lower.
Bytes usable_memory() {
  std::int64_t bytes = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  std::ifstream file("/sys/fs/cgroup/memory.max");
  std::int64_t limit = 0;
  if (file >> limit && limit > 0) bytes = std::min(bytes, limit);
  return Bytes(bytes);
}

std::vector<Device> make_devices(const LinkOptions& options) {
  const std::vector<int> allowed = allowed_cores();
  const auto per_device = static_cast<std::size_t>(options.cores_per_device);
  const auto needed = static_cast<std::size_t>(options.devices) * per_device;
  if (options.devices < 2)
    throw Error(ErrorKind::usage, "devices = " + std::to_string(options.devices) + ": a link needs at least 2");
  if (options.cores_per_device < 1) throw Error(ErrorKind::usage, "cores per device must be at least 1");
  if (needed > allowed.size()) {
    throw Error(ErrorKind::device,
                std::to_string(options.devices) + " devices of " + std::to_string(options.cores_per_device) +
                    " cores need " + std::to_string(needed) + " cores, this process may use " +
                    std::to_string(allowed.size()) +
                    "; ask for fewer devices, or describe the machine with --devices and --bandwidth");
  }
  std::vector<Device> devices(static_cast<std::size_t>(options.devices));
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const auto first = allowed.begin() + static_cast<std::ptrdiff_t>(i * per_device);
    devices[i].id = DeviceId{static_cast<int>(i)};
    devices[i].index = static_cast<int>(i);
    devices[i].cores.assign(first, first + static_cast<std::ptrdiff_t>(per_device));
    devices[i].memory = Bytes(usable_memory().value / options.devices);
  }
  return devices;
}

// The element at `share` of the sorted values.
Seconds percentile(const std::vector<double>& sorted, double share) {
  return Seconds(sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5)]);
}

LinkSample summarise(Bytes size, std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return {size,
          {percentile(times, 0.5), percentile(times, 0.16), percentile(times, 0.84),
           static_cast<std::int64_t>(times.size())}};
}

std::vector<Bytes> sizes_between(Bytes smallest, Bytes largest) {
  std::vector<Bytes> sizes;
  for (Bytes size = smallest; size <= largest; size = size * 2) sizes.push_back(size);
  if (sizes.size() < 2)
    throw Error(ErrorKind::usage,
                "link sizes " + to_text(smallest) + " to " + to_text(largest) + ": give at least a doubling");
  return sizes;
}

}  // namespace

Cluster measure_links(const LinkOptions& options, const std::function<void(double)>& progress) {
  Cluster cluster;
  cluster.measured = true;
  cluster.devices = make_devices(options);
  const std::vector<Bytes> sizes = sizes_between(options.smallest, options.largest);
  std::vector<LinkSample> samples;
  for (const Bytes size : sizes) {
    std::vector<double> times;
    for (std::size_t i = 0; i + 1 < cluster.devices.size(); ++i) {
      PingPong pair(cluster.devices[i].cores, cluster.devices[i + 1].cores);
      const std::vector<double> measured = pair.play(size, options.warm_up, options.repetitions);
      times.insert(times.end(), measured.begin(), measured.end());
    }
    samples.push_back(summarise(size, std::move(times)));
    if (progress) progress(static_cast<double>(samples.size()) / static_cast<double>(sizes.size()));
  }
  cluster.levels.push_back(fit_link("process", options.devices, std::move(samples)));
  return cluster;
}

}  // namespace pp::run
