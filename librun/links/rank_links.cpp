#include "librun/links/rank_links.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/device/cores.h"
#include "libprofile/device/machine.h"
#include "librun/links/link_levels.h"
#include "librun/links/link_meter.h"

namespace pp::run {

namespace {

using Clock = std::chrono::steady_clock;

// All ranks are here before anybody goes on: no pair disturbs another.
void meet(Ranks& ranks) {
  float nothing = 0;
  ranks.all_reduce({&nothing, 1});
}

// Numbers and texts as messages: their count first.
template <class Value>
void send_values(Ranks& ranks, int to, const std::vector<Value>& values) {
  const std::size_t count = values.size();
  ranks.send(to, std::as_bytes(std::span(&count, 1)));
  ranks.send(to, std::as_bytes(std::span(values)));
}

template <class Value>
std::vector<Value> receive_values(Ranks& ranks, int from) {
  std::size_t count = 0;
  ranks.receive(from, std::as_writable_bytes(std::span(&count, 1)));
  std::vector<Value> values(count);
  ranks.receive(from, std::as_writable_bytes(std::span(values)));
  return values;
}

// Half of each counted round trip, in seconds, on the first of the two; nothing on the second.
std::vector<double> play(LinkMedium& medium, int other, bool first, const LinkSweep& sweep) {
  std::vector<double> times;
  for (int i = 0; i < sweep.warm_up + sweep.repetitions; ++i) {
    const auto start = Clock::now();
    if (first) medium.send(other);
    medium.receive(other);
    if (!first) medium.send(other);
    if (first && i >= sweep.warm_up) times.push_back(Seconds(Clock::now() - start).count() / 2);
  }
  return times;
}

// On rank 0 the pair's samples. Every rank calls this.
std::vector<LinkSample> sample_pair(Ranks& ranks, LinkMedium& medium, int first, int second,
                                    const LinkSweep& sweep) {
  std::vector<LinkSample> samples;
  const int me = ranks.rank();
  for (const Bytes size : sizes_of(sweep)) {
    meet(ranks);
    std::vector<double> times;
    medium.set_size(size);
    if (me == first || me == second) times = play(medium, me == first ? second : first, me == first, sweep);
    if (me == first && me != 0) send_values(ranks, 0, times);
    if (me == 0 && first != 0) times = receive_values<double>(ranks, first);
    if (me == 0) samples.push_back(summarise(size, std::move(times)));
  }
  return samples;
}

std::vector<LinkSample> sample_all_reduce(Ranks& ranks, LinkMedium& medium, const LinkSweep& sweep) {
  std::vector<LinkSample> samples;
  for (const Bytes size : sizes_of(sweep)) {
    medium.set_size(size);
    std::vector<double> times;
    for (int i = 0; i < sweep.warm_up + sweep.repetitions; ++i) {
      meet(ranks);
      const auto start = Clock::now();
      medium.all_reduce();
      if (i >= sweep.warm_up) times.push_back(Seconds(Clock::now() - start).count());
    }
    samples.push_back(summarise(size, std::move(times)));
  }
  return samples;
}

std::vector<char> host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return {name.data(), name.data() + std::strlen(name.data())};
}

// What each rank says about itself, gathered on rank 0; empty elsewhere.
std::vector<Device> gather_devices(Ranks& ranks, const Device& mine) {
  const std::vector<std::int64_t> numbers{static_cast<std::int64_t>(mine.kind), mine.index, mine.memory.value};
  if (ranks.rank() != 0) {
    send_values(ranks, 0, host_name());
    send_values(ranks, 0, mine.cores);
    send_values(ranks, 0, numbers);
    return {};
  }
  std::vector<Device> devices(static_cast<std::size_t>(ranks.size()));
  std::map<std::string, int> on_node;
  for (int r = 0; r < ranks.size(); ++r) {
    const auto name = r == 0 ? host_name() : receive_values<char>(ranks, r);
    Device& device = devices[static_cast<std::size_t>(r)];
    device.id = DeviceId{r};
    device.node.assign(name.begin(), name.end());
    device.cores = r == 0 ? mine.cores : receive_values<int>(ranks, r);
    const auto theirs = r == 0 ? numbers : receive_values<std::int64_t>(ranks, r);
    device.kind = static_cast<DeviceKind>(theirs[0]);
    const int place = on_node[device.node]++;
    device.index = device.kind == DeviceKind::cpu ? place : static_cast<int>(theirs[1]);
    device.memory = Bytes(theirs[2]);
  }
  for (Device& device : devices) {
    if (device.kind == DeviceKind::cpu) device.memory = Bytes(device.memory.value / on_node[device.node]);
  }
  return devices;
}

class HostMedium final : public LinkMedium {
 public:
  explicit HostMedium(Ranks& ranks) : ranks_(ranks) {}
  void set_size(Bytes size) override { values_.resize(static_cast<std::size_t>(size.value) / sizeof(float)); }
  void send(int to) override { ranks_.send(to, std::as_bytes(std::span(values_))); }
  void receive(int from) override { ranks_.receive(from, std::as_writable_bytes(std::span(values_))); }
  void all_reduce() override { ranks_.all_reduce(values_); }
  Device device() const override {
    Device device;
    device.cores = profile::usable_cores();
    device.memory = profile::machine_memory();
    return device;
  }

 private:
  Ranks& ranks_;
  std::vector<float> values_;
};

}  // namespace

std::unique_ptr<LinkMedium> make_host_medium(Ranks& ranks) { return std::make_unique<HostMedium>(ranks); }

std::optional<Cluster> measure_rank_links(Ranks& ranks, LinkMedium& medium, const LinkSweep& sweep,
                                          const std::function<void(double)>& progress) {
  if (ranks.size() < 2) {
    throw Error(ErrorKind::usage, "1 rank: a link needs at least 2; start with mpirun -n 2 or more");
  }
  const int measurements = ranks.size() * (ranks.size() - 1) / 2 + 1;  // the pairs, and the all-reduce
  int done = 0;
  const auto step = [&] {
    if (ranks.rank() == 0 && progress) progress(static_cast<double>(++done) / measurements);
  };
  const std::vector<Device> devices = gather_devices(ranks, medium.device());
  std::vector<MeasuredPair> pairs;
  for (int i = 0; i < ranks.size(); ++i) {
    for (int j = i + 1; j < ranks.size(); ++j) {
      pairs.push_back({i, j, sample_pair(ranks, medium, i, j, sweep)});
      step();
    }
  }
  std::vector<LinkSample> reduced = sample_all_reduce(ranks, medium, sweep);
  step();
  if (ranks.rank() != 0) return std::nullopt;
  Cluster cluster = build_cluster(devices, pairs, "node");
  add_all_reduce(cluster, std::move(reduced));
  return cluster;
}

}  // namespace pp::run
