#include "librun/transport/direct_ways.h"

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
  std::vector<std::shared_ptr<DeviceGroup>*> users;
};

std::vector<Wanted> wanted_by(std::span<const Channel> channels, const std::function<bool(const Group&)>& may,
                              DeviceGroups& ways) {
  std::vector<Wanted> wanted;
  using Way = std::tuple<WorkerId, WorkerId, int, int, StageId, bool>;
  std::map<Way, std::size_t> known;
  for (std::size_t c = 0; c < channels.size(); ++c) {
    const Channel& of = channels[c];
    const Group members{of.from, of.to};
    if (!of.in_order || !may(members)) continue;
    const Way way{of.from, of.to, of.layer, of.output, of.consumer, of.direction == Direction::gradient};
    const auto [place, is_new] = known.emplace(way, wanted.size());
    if (is_new) wanted.push_back({members, {}});
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
    if (may(groups[g])) wanted.push_back({groups[g], {&ways.collectives[g]}});
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
    for (std::shared_ptr<DeviceGroup>* const user : wanted[i].users) *user = ways.all.back();
  }
  return ways;
}

}  // namespace pp::run
