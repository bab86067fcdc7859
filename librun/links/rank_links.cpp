#include "librun/links/rank_links.h"

#include <chrono>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/index.h"
#include "libprofile/device/machine.h"
#include "librun/links/link_levels.h"
#include "librun/links/message_cost.h"
#include "librun/threads/coordinator.h"
#include "librun/transport/mailbox.h"
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

// One size of a pair, by its two ranks; what the first one measures counts.
void play_size(LinkMedium& medium, bool first, const LinkSweep& sweep, std::size_t which, MeasuredPair& pair) {
  const std::vector<Bytes> sizes = sizes_of(sweep);
  const int other = first ? pair.second : pair.first;
  std::vector<double> times(static_cast<std::size_t>(sweep.repetitions));
  play(medium, other, first, sweep, times);
  const LinkSample& sample = pair.samples.emplace_back(summarise(sizes[which], std::move(times)));
  Peers* const messages = medium.messages();
  if (messages == nullptr || !is_tried(which, sizes.size())) return;
  const Seconds transfer = sample.time.median;
  pair.kept.push_back({sizes[which], measure_kept(*messages, other, first, sizes[which], transfer).time});
  if (which < sizes.size() / 2) return;  // both ways for the larger half of the sizes
  pair.both_ways.push_back(measure_both_ways(*messages, other, first, sizes[which], sweep.repetitions) /
                           transfer);
}

// Every rank calls this, and has what the first one measured.
MeasuredPair measure_pair(Peers& peers, AllRanks& all, LinkMedium& medium, int first, int second,
                          const LinkSweep& sweep) {
  MeasuredPair pair{first, second, {}};
  const int me = peers.rank();
  const std::vector<Bytes> sizes = sizes_of(sweep);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    all.meet();  // no pair disturbs another
    medium.set_size(sizes[i]);
    if (me == first || me == second) play_size(medium, me == first, sweep, i, pair);
  }
  all.meet();  // a Mover takes texts for noise
  const std::string said =
      gather(peers, Packer().add(pair.samples).add(pair.kept).add(pair.both_ways).take())[at(first)];
  Unpacker from(said);
  from.read(pair.samples);
  from.read(pair.kept);
  from.read(pair.both_ways);
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
  AllRanks all(peers);
  const std::vector<Device> devices = gather_devices(peers, medium.device());
  const bool tells = peers.rank() == 0;
  const MeasuredLinks links = measure_all(
      peers.size(), [&](int i, int j) { return measure_pair(peers, all, medium, i, j, sweep); },
      [&] { return sample_all_reduce(all, medium, sweep); }, tells ? progress : nullptr);
  if (!tells) return std::nullopt;
  return build_cluster(devices, links, "node");
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

std::vector<std::string> gather(Peers& peers, std::string mine) {
  constexpr std::chrono::hours kMeasuring(24);  // that ranks may be apart
  Mailbox mailbox(peers, kMeasuring);
  std::vector<std::string> all = gather_everywhere(mailbox, std::move(mine));
  mailbox.flush();
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
