#include "librun/transport/direct_ways.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "librun/transport/packed.h"

namespace pp::run {

namespace {

std::string pack(const std::vector<std::string>& texts) {
  Packer to;
  to.add(texts.size());
  for (const std::string& text : texts) to.add(text);
  return to.take();
}

std::vector<std::string> unpack(const std::string& bytes) {
  Unpacker from(bytes);
  std::vector<std::string> texts(from.take<std::size_t>());
  for (std::string& text : texts) from.read(text);
  return texts;
}

std::vector<std::vector<std::string>> from_all(Mailbox& mailbox, const std::vector<std::string>& mine) {
  std::vector<std::vector<std::string>> by_rank;
  for (const std::string& bytes : gather_everywhere(mailbox, pack(mine))) by_rank.push_back(unpack(bytes));
  return by_rank;
}

// Per worker, from the rank that has it.
std::vector<std::string> everybodys(Mailbox& mailbox, const Placement& placement,
                                    const std::vector<std::string>& identity) {
  const std::vector<std::vector<std::string>> by_rank = from_all(mailbox, identity);
  std::vector<std::string> all(identity.size());
  for (std::size_t w = 0; w < all.size(); ++w)
    all[w] = by_rank[static_cast<std::size_t>(placement.of(WorkerId{static_cast<int>(w)}))][w];
  return all;
}

bool fits(const Group& members, const Placement& placement, const std::vector<std::string>& identity) {
  std::set<int> ranks;
  std::set<std::string> devices;
  for (const WorkerId worker : members) {
    if (identity[index(worker)].empty()) return false;
    ranks.insert(placement.of(worker));
    devices.insert(identity[index(worker)]);
  }
  return members.size() > 1 && ranks.size() == members.size() && devices.size() == members.size();
}

struct Wanted {
  Group members;
  bool one_way = false;  ///< the first member sends to the other one
  std::vector<std::shared_ptr<DeviceGroup>*> users = {};
};

// NCCL connects two members at their first message, for which it waits until both have called. A worker that
// expects a message may have to send one before: so the first ones go when all members are here.
void begin(DeviceGroup& group, bool one_way) {
  std::vector<at::Tensor> rooms;
  group.together([&] {
    for (int other = 0; other < group.size(); ++other) {
      if (other == group.me()) continue;
      if (!one_way || group.me() == 0)
        group.send(other, rooms.emplace_back(at::zeros({1}, at::TensorOptions(group.device()))));
      if (!one_way || group.me() != 0)
        group.receive(other, rooms.emplace_back(at::zeros({1}, at::TensorOptions(group.device()))));
    }
  });
  group.mark()->hold_back();
}

std::vector<Wanted> wanted_by(std::span<const Channel> channels, const std::function<bool(const Group&)>& may,
                              DeviceGroups& ways) {
  std::vector<Wanted> wanted;
  std::map<std::tuple<WorkerId, WorkerId, int>, std::size_t> known;  // from, to, lane
  for (std::size_t c = 0; c < channels.size(); ++c) {
    const Channel& of = channels[c];
    const Group members{of.from, of.to};
    if (!of.in_order || !may(members)) continue;
    const auto [place, is_new] = known.emplace(std::tuple(of.from, of.to, of.lane), wanted.size());
    if (is_new) wanted.push_back({.members = members, .one_way = true});
    wanted[place->second].users.push_back(&ways[c]);
  }
  return wanted;
}

}  // namespace

DirectWays find_direct_ways(Mailbox& mailbox, const Placement& placement, std::span<const Channel> channels,
                            std::span<const Group> groups, const std::vector<std::string>& identity,
                            const DeviceGroupMaker& maker) {
  const std::vector<std::string> identities = everybodys(mailbox, placement, identity);
  const auto may = [&](const Group& members) { return fits(members, placement, identities); };
  DirectWays ways{DeviceGroups(channels.size()), DeviceGroups(groups.size()), {}};
  std::vector<Wanted> wanted = wanted_by(channels, may, ways.channels);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (may(groups[g])) wanted.push_back({.members = groups[g], .users = {&ways.collectives[g]}});
  }
  if (wanted.empty()) return ways;

  std::vector<std::string> keys(wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (placement.here(wanted[i].members.front())) keys[i] = maker.key();
  }
  const std::vector<std::vector<std::string>> by_rank = from_all(mailbox, keys);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const Group& members = wanted[i].members;
    const auto mine = std::ranges::find_if(members, [&](WorkerId w) { return placement.here(w); });
    if (mine == members.end()) continue;
    const std::string& key = by_rank[static_cast<std::size_t>(placement.of(members.front()))][i];
    const auto me = static_cast<int>(mine - members.begin());
    ways.all.push_back(maker.join(key, me, static_cast<int>(members.size()), *mine));
    begin(*ways.all.back(), wanted[i].one_way);
    for (std::shared_ptr<DeviceGroup>* const user : wanted[i].users) *user = ways.all.back();
  }
  return ways;
}

}  // namespace pp::run
