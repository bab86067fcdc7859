#include "librun/links/core_links.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

#include "libprofile/device/cores.h"
#include "librun/links/ping_pong.h"

namespace pp::run {

namespace {

using Clock = Coordinator::Clock;

// Threads pinned to their cores.
Team pinned(const std::vector<Cores>& cores) {
  return {static_cast<int>(cores.size()),
          [cores](int me) { profile::pin_thread(cores[static_cast<std::size_t>(me)]); }};
}

// One value of every cache line: the line is what travels.
template <class Value>
Value read_lines(const std::vector<Value>& buffer) {
  constexpr std::size_t kPerLine = 64 / sizeof(Value);
  Value sum = 0;
  for (std::size_t i = 0; i < buffer.size(); i += kPerLine) sum += buffer[i];
  return sum;
}

std::vector<double> hand_over_times(const Cores& first, const Cores& second, Bytes size,
                                    const LinkSweep& sweep) {
  using Buffer = std::vector<std::uint64_t>;
  std::array<std::shared_ptr<Buffer>, 2> buffers;
  Team team = pinned({first, second});
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

// Puts the sum of elements [first, last) of all vectors into each of them.
void add_slice(std::vector<std::vector<float>>& parts, std::size_t first, std::size_t last) {
  std::vector<float>& sum = parts.front();
  for (std::size_t p = 1; p < parts.size(); ++p) {
    for (std::size_t i = first; i < last; ++i) sum[i] += parts[p][i];
  }
  const auto begin = sum.begin() + static_cast<std::ptrdiff_t>(first),
             end = sum.begin() + static_cast<std::ptrdiff_t>(last);
  for (std::size_t p = 1; p < parts.size(); ++p)
    std::copy(begin, end, parts[p].begin() + static_cast<std::ptrdiff_t>(first));
}

std::vector<double> reduce_times(const std::vector<Cores>& cores, Bytes size, const LinkSweep& sweep) {
  const std::size_t length = static_cast<std::size_t>(size.value) / sizeof(float);
  std::vector<std::vector<float>> parts(cores.size(), std::vector<float>(length));
  std::vector<double> times;
  Team team = pinned(cores);
  Barrier barrier(team.coordinator(), cores.size());
  team.run([&](int worker) {
    const auto me = static_cast<std::size_t>(worker);
    const auto meet = [&] { barrier.arrive_and_wait(WorkerId{worker}, "the other threads at the all-reduce"); };
    volatile float keep = 0;
    for (int i = 0; i < sweep.warm_up + sweep.repetitions; ++i) {
      std::ranges::fill(parts[me], 1.0F);
      meet();
      const auto start = Clock::now();
      add_slice(parts, length * me / cores.size(), length * (me + 1) / cores.size());
      meet();
      keep = keep + read_lines(parts[me]);
      if (me == 0 && i >= sweep.warm_up) times.push_back(Seconds(Clock::now() - start).count());
      meet();  // nobody writes its next vector while another one still reads
    }
  });
  return times;
}

}  // namespace

std::vector<LinkSample> sample_pair(const Cores& first, const Cores& second, const LinkSweep& sweep) {
  std::vector<LinkSample> samples;
  for (const Bytes size : sizes_of(sweep))
    samples.push_back(summarise(size, hand_over_times(first, second, size, sweep)));
  return samples;
}

std::vector<LinkSample> sample_all_reduce(const std::vector<Cores>& cores, const LinkSweep& sweep) {
  std::vector<LinkSample> samples;
  for (const Bytes size : sizes_of(sweep)) samples.push_back(summarise(size, reduce_times(cores, size, sweep)));
  return samples;
}

}  // namespace pp::run
