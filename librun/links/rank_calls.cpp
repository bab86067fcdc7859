#include "librun/links/rank_calls.h"

#include <numeric>
#include <utility>

#include "librun/threads/coordinator.h"
#include "librun/transport/packed.h"

namespace pp::run {

namespace {

std::vector<int> everybody(const Peers& peers) {
  std::vector<int> ranks(static_cast<std::size_t>(peers.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

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
