#include "librun/links/rank_links.h"

#include <chrono>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/device/machine.h"
#include "librun/links/link_levels.h"
#include "librun/links/message_cost.h"
#include "librun/threads/coordinator.h"
#include "librun/transport/packed.h"

namespace pp::run {

namespace {

using Clock = std::chrono::steady_clock;

// Half of each counted round trip, in seconds; that of the first of the two counts.
void play(LinkMedium& medium, int other, bool first, const LinkSweep& sweep, std::span<double> times) {
  for (int i = -sweep.warm_up; i < sweep.repetitions; ++i) {
    const auto start = Clock::now();
    if (first) medium.send(other);
    medium.receive(other);
    if (!first) medium.send(other);
    if (i >= 0) times[static_cast<std::size_t>(i)] = Seconds(Clock::now() - start).count() / 2;
  }
}

double median_of(const std::vector<double>& times) { return summarise({}, times).time.median.count(); }

// One size of a pair, by its two ranks; what the first one measures counts.
struct Played {
  std::vector<double> times = {};
  std::vector<Seconds> kept = {};      ///< one or none
  std::vector<double> both_ways = {};  ///< of the larger half of the sizes
};

Played play_size(LinkMedium& medium, int other, bool first, const LinkSweep& sweep, std::size_t which) {
  const std::vector<Bytes> sizes = sizes_of(sweep);
  Played played{.times = std::vector<double>(static_cast<std::size_t>(sweep.repetitions))};
  play(medium, other, first, sweep, played.times);
  Peers* const messages = medium.messages();
  if (messages == nullptr) return played;
  const Seconds transfer(median_of(played.times));
  if (!is_tried(which, sizes.size())) return played;
  played.kept.push_back(measure_kept(*messages, other, first, sizes[which], transfer).time);
  if (which < sizes.size() / 2) return played;
  const Seconds both = measure_both_ways(*messages, other, first, sizes[which], sweep.repetitions);
  played.both_ways.push_back(both / transfer);
  return played;
}

// On rank 0 what the pair's first rank has played; every rank calls this.
Played play_apart(Peers& peers, LinkMedium& medium, int first, int second, const LinkSweep& sweep,
                  std::size_t which) {
  const int me = peers.rank();
  Played played;
  if (me == first || me == second)
    played = play_size(medium, me == first ? second : first, me == first, sweep, which);
  if (first == 0) return played;
  if (me == first) {
    send_text(peers, 0, Packer().add(played.times).add(played.kept).add(played.both_ways).take());
  } else if (me == 0) {
    const std::string said = receive_text(peers, first);
    Unpacker from(said);
    from.read(played.times);
    from.read(played.kept);
    from.read(played.both_ways);
  }
  return played;
}

// Complete on rank 0. Every rank calls this.
MeasuredPair measure_pair(Peers& peers, AllRanks& all, LinkMedium& medium, int first, int second,
                          const LinkSweep& sweep) {
  MeasuredPair pair{first, second, {}};
  const std::vector<Bytes> sizes = sizes_of(sweep);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    all.meet();  // no pair disturbs another
    medium.set_size(sizes[i]);
    Played played = play_apart(peers, medium, first, second, sweep, i);
    if (peers.rank() != 0) continue;
    pair.samples.push_back(summarise(sizes[i], std::move(played.times)));
    for (const Seconds time : played.kept) pair.kept.push_back({sizes[i], time});
    pair.both_ways.insert(pair.both_ways.end(), played.both_ways.begin(), played.both_ways.end());
  }
  return pair;
}

std::vector<LinkSample> sample_all_reduce(AllRanks& all, LinkMedium& medium, const LinkSweep& sweep) {
  std::vector<LinkSample> samples;
  for (const Bytes size : sizes_of(sweep)) {
    medium.set_size(size);
    std::vector<double> times;
    for (int i = 0; i < sweep.warm_up + sweep.repetitions; ++i) {
      all.meet();
      const auto start = Clock::now();
      medium.all_reduce();
      if (i >= sweep.warm_up) times.push_back(Seconds(Clock::now() - start).count());
    }
    samples.push_back(summarise(size, std::move(times)));
  }
  return samples;
}

std::string packed(const Device& device, const std::string& host) {
  return Packer().add(host).add(device.cores).add(device.kind).add(device.index).add(device.memory).take();
}

// What each rank says about itself.
std::vector<Device> gather_devices(Peers& peers, const Device& mine) {
  std::vector<Device> devices;
  std::map<std::string, int> on_node;
  for (const std::string& said : gather(peers, packed(mine, peers.host()))) {
    Unpacker from(said);
    Device& device = devices.emplace_back();
    device.id = DeviceId{static_cast<int>(devices.size()) - 1};
    from.read(device.node);
    from.read(device.cores);
    from.read(device.kind);
    from.read(device.index);
    from.read(device.memory);
    const int place = on_node[device.node]++;
    if (device.kind == DeviceKind::cpu) device.index = place;
  }
  for (Device& device : devices) {
    if (device.kind == DeviceKind::cpu) device.memory = Bytes(device.memory.value / on_node[device.node]);
  }
  return devices;
}

class HostMedium final : public LinkMedium {
 public:
  explicit HostMedium(Peers& peers) : peers_(peers), all_(peers) {}
  void set_size(Bytes size) override { values_.resize(static_cast<std::size_t>(size.value) / sizeof(float)); }
  void send(int to) override { send_to(peers_, to, std::as_bytes(std::span(values_))); }
  void receive(int from) override { receive_from(peers_, from, std::as_writable_bytes(std::span(values_))); }
  void all_reduce() override { all_.sum(values_); }
  Peers* messages() override { return &peers_; }
  Device device() const override {
    Device device;
    device.cores = profile::usable_cores();
    device.memory = profile::machine_memory();
    return device;
  }

 private:
  Peers& peers_;
  AllRanks all_;
  std::vector<float> values_;
};

std::vector<int> everybody(const Peers& peers) {
  std::vector<int> ranks(static_cast<std::size_t>(peers.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

std::unique_ptr<LinkMedium> make_host_medium(Peers& peers) { return std::make_unique<HostMedium>(peers); }

std::optional<Cluster> measure_rank_links(Peers& peers, LinkMedium& medium, const LinkSweep& sweep,
                                          const std::function<void(double)>& progress) {
  if (peers.size() < 2) {
    throw Error(ErrorKind::usage, "1 rank: a link needs at least 2; start with mpirun -n 2 or more");
  }
  const int measurements = peers.size() * (peers.size() - 1) / 2 + 1;  // the pairs, and the all-reduce
  int done = 0;
  const auto step = [&] {
    if (peers.rank() == 0 && progress) progress(static_cast<double>(++done) / measurements);
  };
  AllRanks all(peers);
  const std::vector<Device> devices = gather_devices(peers, medium.device());
  std::vector<MeasuredPair> pairs;
  for (int i = 0; i < peers.size(); ++i) {
    for (int j = i + 1; j < peers.size(); ++j) {
      pairs.push_back(measure_pair(peers, all, medium, i, j, sweep));
      step();
    }
  }
  std::vector<LinkSample> reduced = sample_all_reduce(all, medium, sweep);
  step();
  if (peers.rank() != 0) return std::nullopt;
  Cluster cluster = build_cluster(devices, pairs, "node");
  add_all_reduce(cluster, std::move(reduced));
  return cluster;
}

void wait_for(Posted& posted) {
  for (int asked = 0; !posted.done(); ++asked) Coordinator::pause(asked);
}

void send_to(Peers& peers, int to, std::span<const std::byte> bytes) {
  wait_for(*peers.send({.rank = to}, bytes, bytes.size(), Peers::Sent::gone));
}

void receive_from(Peers& peers, int from, std::span<std::byte> bytes) {
  wait_for(*peers.receive({.rank = from}, bytes));
}

void send_text(Peers& peers, int to, const std::string& text) {
  const std::size_t size = text.size();
  send_to(peers, to, std::as_bytes(std::span(&size, 1)));
  send_to(peers, to, std::as_bytes(std::span(text)));
}

std::string receive_text(Peers& peers, int from) {
  std::size_t size = 0;
  receive_from(peers, from, std::as_writable_bytes(std::span(&size, 1)));
  std::string text(size, '\0');
  receive_from(peers, from, std::as_writable_bytes(std::span(text)));
  return text;
}

std::vector<std::string> gather_at_first(Peers& peers, std::string mine) {
  if (peers.rank() != 0) {
    send_text(peers, 0, mine);
    return {};
  }
  std::vector<std::string> all{std::move(mine)};
  for (int rank = 1; rank < peers.size(); ++rank) all.push_back(receive_text(peers, rank));
  return all;
}

std::vector<std::string> gather(Peers& peers, std::string mine) {
  std::vector<std::string> all = gather_at_first(peers, std::move(mine));
  if (peers.rank() != 0) {
    const std::string bytes = receive_text(peers, 0);
    Unpacker from(bytes);
    while (!from.empty()) all.push_back(from.take<std::string>());
    return all;
  }
  Packer packer;
  for (const std::string& one : all) packer.add(one);
  const std::string bytes = packer.take();
  for (int rank = 1; rank < peers.size(); ++rank) send_text(peers, rank, bytes);
  return all;
}

AllRanks::AllRanks(Peers& peers) : peers_(peers), group_(peers.join(everybody(peers))) {}

void AllRanks::sum(std::span<float> values) {
  wait_for(*peers_.sum(group_, std::as_writable_bytes(values), Peers::Element::float32));
}

void AllRanks::meet() {
  float nothing = 0;
  sum({&nothing, 1});
}

}  // namespace pp::run
