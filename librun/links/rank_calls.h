// Calls between ranks that return when they are done: for measurements, which time what they wait for, and
// wait for it as pp-run does. Plain values only: apps include this header.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "librun/transport/peers.h"

namespace pp::run {

void wait_for(Posted& posted);

/// A message of as many bytes at both ends.
void send_to(Peers& peers, int to, std::span<const std::byte> bytes);
void receive_from(Peers& peers, int from, std::span<std::byte> bytes);

/// Of any length.
void send_text(Peers& peers, int to, const std::string& text);
std::string receive_text(Peers& peers, int from);

/// What every rank brings, in the order of the ranks, on rank 0 (empty elsewhere), or everywhere; all of them
/// call it.
std::vector<std::string> gather_at_first(Peers& peers, std::string mine);
std::vector<std::string> gather(Peers& peers, std::string mine);

/// All ranks, for what they do at once; all of them make one, and call in the same order.
class AllRanks {
 public:
  /// `peers` must outlive it.
  explicit AllRanks(Peers& peers);
  /// Every rank gets the sums over all ranks.
  void sum(std::span<float> values);
  /// All ranks are here before anybody goes on.
  void meet();

 private:
  Peers& peers_;
  int group_;
};

}  // namespace pp::run
