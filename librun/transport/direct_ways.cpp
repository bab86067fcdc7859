#include "librun/transport/direct_ways.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "libprofile/core/error.h"
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

/// A group that this process is to join.
struct Membership {
  std::size_t wanted = 0;
  std::string key;
  int me = 0, size = 0;
  WorkerId worker{};
  bool one_way = false;
};

/// What has come of a process's groups, in their order.
struct Joined {
  std::vector<std::shared_ptr<DeviceGroup>> groups;
  std::exception_ptr error;  ///< of the next one
};

/// A thread of its own joins them. The library waits for partners without end, so after `limit` that thread is
/// left behind with what it has.
Joined join_all(const std::vector<Membership>& all, const DeviceGroupMaker& maker, Seconds limit) {
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    Joined joined;
    bool left = false;  ///< behind: what the caller lent is gone
  };
  const auto shared = std::make_shared<Shared>();
  const auto over = [shared, count = all.size()] {
    return shared->joined.error || shared->joined.groups.size() == count;
  };
  std::thread thread([shared, all, maker] {
    for (const Membership& one : all) {
      std::shared_ptr<DeviceGroup> group;
      std::exception_ptr error;
      try {
        group = maker.join(one.key, one.me, one.size, one.worker);
        begin(*group, one.one_way);
      } catch (...) {
        error = std::current_exception();
      }
      const std::lock_guard held(shared->mutex);
      if (error) shared->joined.error = error;
      if (!error) shared->joined.groups.push_back(std::move(group));
      shared->changed.notify_all();
      if (error || shared->left) return;
    }
  });
  std::unique_lock held(shared->mutex);
  for (bool goes_on = true; goes_on && !over();) {
    const std::size_t before = shared->joined.groups.size();
    goes_on = shared->changed.wait_for(
        held, limit, [&] { return shared->joined.error || shared->joined.groups.size() > before; });
  }
  Joined joined = shared->joined;
  const bool ends = over();
  shared->left = true;
  held.unlock();
  ends ? thread.join() : thread.detach();
  return joined;
}

// All ranks throw the same: which members of the first group that has not come about still wait in it.
void check_joined(Mailbox& mailbox, const Joined& joined, std::size_t next, const std::vector<Wanted>& wanted,
                  const Placement& placement, Seconds limit) {
  const std::string mine = Packer().add(next).add(joined.error ? text_of(joined.error) : std::string()).take();
  std::vector<std::size_t> waits_at;
  std::string why;
  for (const std::string& bytes : gather_everywhere(mailbox, mine)) {
    Unpacker from(bytes);
    waits_at.push_back(from.take<std::size_t>());
    const auto said = from.take<std::string>();
    if (why.empty() && !said.empty()) why = "rank " + std::to_string(waits_at.size() - 1) + ": " + said;
  }
  if (joined.error) std::rethrow_exception(joined.error);
  if (!why.empty()) throw Error(ErrorKind::run, why);
  const std::size_t first = std::ranges::min(waits_at);
  if (first == wanted.size()) return;
  std::vector<std::string> all, missing;
  for (const WorkerId worker : wanted[first].members) {
    const int rank = placement.of(worker);
    all.push_back(std::to_string(rank));
    if (waits_at[static_cast<std::size_t>(rank)] == first) missing.push_back(std::to_string(rank));
  }
  const auto list = [](const std::vector<std::string>& ranks) {
    std::string text = ranks.size() > 1 ? "ranks " : "rank ";
    for (const std::string& rank : ranks) text += (&rank == &ranks.front() ? "" : ", ") + rank;
    return text;
  };
  throw Error(ErrorKind::run, "NCCL has not connected the GPUs of " + list(all) + " for " + to_text(limit) +
                                  ": " + (missing == all ? "all wait" : "missing: " + list(missing)) +
                                  "; look at these hosts, and at the network between them "
                                  "(NCCL_SOCKET_IFNAME chooses it, NCCL_DEBUG=INFO shows it)");
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
                            const DeviceGroupMaker& maker, Seconds limit) {
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
  std::vector<Membership> memberships;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const Group& members = wanted[i].members;
    const auto mine = std::ranges::find_if(members, [&](WorkerId w) { return placement.here(w); });
    if (mine == members.end()) continue;
    memberships.push_back({.wanted = i,
                           .key = by_rank[static_cast<std::size_t>(placement.of(members.front()))][i],
                           .me = static_cast<int>(mine - members.begin()),
                           .size = static_cast<int>(members.size()),
                           .worker = *mine,
                           .one_way = wanted[i].one_way});
  }
  Joined joined = join_all(memberships, maker, limit);
  const std::size_t count = joined.groups.size();
  check_joined(mailbox, joined, count < memberships.size() ? memberships[count].wanted : wanted.size(), wanted,
               placement, limit);
  for (std::size_t m = 0; m < count; ++m)
    for (std::shared_ptr<DeviceGroup>* const user : wanted[memberships[m].wanted].users)
      *user = joined.groups[m];
  ways.all = std::move(joined.groups);
  return ways;
}

}  // namespace pp::run
