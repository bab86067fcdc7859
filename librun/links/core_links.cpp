#include "librun/links/core_links.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

#include "libprofile/device/cores.h"
#include "librun/links/ping_pong.h"

namespace pp::run {

namespace {

// One value of every cache line: the line is what travels.
std::uint64_t read_lines(const std::vector<std::uint64_t>& buffer) {
  constexpr std::size_t kPerLine = 64 / sizeof(std::uint64_t);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < buffer.size(); i += kPerLine) sum += buffer[i];
  return sum;
}

std::vector<double> hand_over_times(const Cores& first, const Cores& second, Bytes size,
                                    const LinkSweep& sweep) {
  using Buffer = std::vector<std::uint64_t>;
  std::array<std::shared_ptr<Buffer>, 2> buffers;
  Team team(2, [&](int me) { profile::pin_thread(me == 0 ? first : second); });
  // Fresh bytes each time, written on this core, as a layer writes its output.
  const auto make = [&](int me, int i) -> std::shared_ptr<const Buffer> {
    std::shared_ptr<Buffer>& mine = buffers[static_cast<std::size_t>(me)];
    if (!mine) mine = std::make_shared<Buffer>(static_cast<std::size_t>((size.value + 7) / 8));
    std::ranges::fill(*mine, static_cast<std::uint64_t>(i));
    return mine;
  };
  const auto take = [](int /*me*/, const std::shared_ptr<const Buffer>& bytes) {
    volatile std::uint64_t keep = read_lines(*bytes);  // the reads must not be optimised away
    static_cast<void>(keep);
  };
  return play_ping_pong<std::shared_ptr<const Buffer>>(team, sweep, make, take);
}

}  // namespace

std::vector<LinkSample> sample_pair(const Cores& first, const Cores& second, const LinkSweep& sweep) {
  std::vector<LinkSample> samples;
  for (const Bytes size : sizes_of(sweep))
    samples.push_back(summarise(size, hand_over_times(first, second, size, sweep)));
  return samples;
}

}  // namespace pp::run
