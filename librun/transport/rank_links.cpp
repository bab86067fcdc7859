#include "librun/transport/rank_links.h"

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
#include "librun/transport/link_levels.h"
#include "librun/transport/link_meter.h"

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
std::vector<double> play(Ranks& ranks, int other, bool first, Bytes size, const LinkSweep& sweep) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(size.value));
  std::vector<double> times;
  for (int i = 0; i < sweep.warm_up + sweep.repetitions; ++i) {
    const auto start = Clock::now();
    if (first) ranks.send(other, bytes);
    ranks.receive(other, bytes);
    if (!first) ranks.send(other, bytes);
    if (first && i >= sweep.warm_up) times.push_back(Seconds(Clock::now() - start).count() / 2);
  }
  return times;
}

// On rank 0 the pair's samples. Every rank calls this.
std::vector<LinkSample> sample_pair(Ranks& ranks, int first, int second, const LinkSweep& sweep) {
  std::vector<LinkSample> samples;
  const int me = ranks.rank();
  for (const Bytes size : sizes_of(sweep)) {
    meet(ranks);
    std::vector<double> times;
    if (me == first || me == second)
      times = play(ranks, me == first ? second : first, me == first, size, sweep);
    if (me == first && me != 0) send_values(ranks, 0, times);
    if (me == 0 && first != 0) times = receive_values<double>(ranks, first);
    if (me == 0) samples.push_back(summarise(size, std::move(times)));
  }
  return samples;
}

std::vector<LinkSample> sample_all_reduce(Ranks& ranks, const LinkSweep& sweep) {
  std::vector<LinkSample> samples;
  for (const Bytes size : sizes_of(sweep)) {
    std::vector<float> values(static_cast<std::size_t>(size.value) / sizeof(float));
    std::vector<double> times;
    for (int i = 0; i < sweep.warm_up + sweep.repetitions; ++i) {
      meet(ranks);
      const auto start = Clock::now();
      ranks.all_reduce(values);
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
std::vector<Device> gather_devices(Ranks& ranks) {
  const std::vector<std::int64_t> memory{profile::machine_memory().value};
  if (ranks.rank() != 0) {
    send_values(ranks, 0, host_name());
    send_values(ranks, 0, profile::usable_cores());
    send_values(ranks, 0, memory);
    return {};
  }
  std::vector<Device> devices(static_cast<std::size_t>(ranks.size()));
  std::map<std::string, int> on_node;
  for (int r = 0; r < ranks.size(); ++r) {
    const auto name = r == 0 ? host_name() : receive_values<char>(ranks, r);
    Device& device = devices[static_cast<std::size_t>(r)];
    device.id = DeviceId{r};
    device.node.assign(name.begin(), name.end());
    device.cores = r == 0 ? profile::usable_cores() : receive_values<int>(ranks, r);
    device.memory = Bytes((r == 0 ? memory : receive_values<std::int64_t>(ranks, r)).front());
    device.index = on_node[device.node]++;
  }
  for (Device& device : devices) device.memory = Bytes(device.memory.value / on_node[device.node]);
  return devices;
}

}  // namespace

std::optional<Cluster> measure_rank_links(Ranks& ranks, const LinkSweep& sweep,
                                          const std::function<void(double)>& progress) {
  if (ranks.size() < 2) {
    throw Error(ErrorKind::usage, "1 rank: a link needs at least 2; start with mpirun -n 2 or more");
  }
  const int measurements = ranks.size() * (ranks.size() - 1) / 2 + 1;  // the pairs, and the all-reduce
  int done = 0;
  const auto step = [&] {
    if (ranks.rank() == 0 && progress) progress(static_cast<double>(++done) / measurements);
  };
  const std::vector<Device> devices = gather_devices(ranks);
  std::vector<MeasuredPair> pairs;
  for (int i = 0; i < ranks.size(); ++i) {
    for (int j = i + 1; j < ranks.size(); ++j) {
      pairs.push_back({i, j, sample_pair(ranks, i, j, sweep)});
      step();
    }
  }
  std::vector<LinkSample> reduced = sample_all_reduce(ranks, sweep);
  step();
  if (ranks.rank() != 0) return std::nullopt;
  Cluster cluster = build_cluster(devices, pairs, "node");
  add_all_reduce(cluster, std::move(reduced));
  return cluster;
}

}  // namespace pp::run
