// What a tensor from rank to rank costs beside the bare library: `mpirun -n 2 bench_transport`, one rank to the
// other and back, in turns with MPI_Isend and MPI_Irecv alone, into new tensors that are expected as early.
// Half a round trip each, medians of rounds. With arguments: messages of so many bytes; above 2 GiB, which MPI
// alone does not take, once. scripts/bench transport starts it.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <vector>

#include "libprofile/device/process.h"
#include "librun/threads/coordinator.h"
#include "librun/transport/rank_transport.h"

namespace {

using namespace pp;

constexpr int kRounds = 9;

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}

// Of all that came, the last message.
void check(const at::Tensor& received, const at::Tensor& sent) {
  if (received.equal(sent)) return;
  std::fputs("bench_transport: a message came with other bytes\n", stderr);
  std::exit(1);
}

class PingPong {
 public:
  PingPong(run::Peers& peers, std::int64_t bytes)
      : peers_(peers),
        placement_{.rank = peers.rank(), .ranks = 2, .rank_of = {0, 1}},
        other_(1 - peers.rank()),
        tensor_(at::arange(bytes, at::kByte).view({1, bytes})),
        coordinator_(2),
        transport_(run::make_rank_transport(coordinator_, {channel(0, bytes), channel(1, bytes)}, placement_,
                                            peers_)) {}

  double raw(int repeats) {
    const auto post = [&] {
      coming_ = at::empty_like(tensor_);
      MPI_Irecv(coming_.data_ptr(), count(), MPI_BYTE, other_, 1, MPI_COMM_WORLD, &receive_);
    };
    post();
    const double seconds = timed(repeats, [&](bool sends) {
      if (sends) {
        MPI_Isend(tensor_.data_ptr(), count(), MPI_BYTE, other_, 1, MPI_COMM_WORLD, &send_);
        return;
      }
      at::Tensor last = coming_;
      MPI_Request due = receive_;
      post();
      MPI_Wait(&due, MPI_STATUS_IGNORE);
      MPI_Wait(&send_, MPI_STATUS_IGNORE);
    });
    MPI_Isend(tensor_.data_ptr(), count(), MPI_BYTE, other_, 1, MPI_COMM_WORLD, &send_);
    MPI_Wait(&receive_, MPI_STATUS_IGNORE);
    MPI_Wait(&send_, MPI_STATUS_IGNORE);
    return seconds;
  }

  // As a worker does it: what comes is expected one operation ahead.
  double ours(int repeats) {
    const int in = other_, out = peers_.rank();
    transport_->expect(in, received_, 1);
    const double seconds = timed(repeats, [&](bool sends) {
      if (sends) return transport_->send(out, sent_++, tensor_);
      transport_->expect(in, received_ + 1, 1);
      transport_->receive(in, received_++);
    });
    // The one that is expected still.
    transport_->send(out, sent_++, tensor_);
    check(transport_->receive(in, received_++), tensor_);
    return seconds;
  }

 private:
  static run::Channel channel(int from, std::int64_t bytes) {
    return {
        .from = WorkerId{from}, .to = WorkerId{1 - from}, .shape = {bytes}, .dtype = DType::uint8, .window = 4};
  }
  int count() const { return static_cast<int>(tensor_.numel()); }

  // Rank 0 sends first. Seconds of one way.
  template <class Move>
  double timed(int repeats, Move&& move) {
    MPI_Barrier(MPI_COMM_WORLD);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repeats; ++i) {
      move(peers_.rank() == 0);
      move(peers_.rank() != 0);
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / (2.0 * repeats);
  }

  run::Peers& peers_;
  run::Placement placement_;
  int other_;
  at::Tensor tensor_;
  at::Tensor coming_;
  MPI_Request send_ = MPI_REQUEST_NULL, receive_ = MPI_REQUEST_NULL;
  run::Coordinator coordinator_;
  std::unique_ptr<run::Transport> transport_;
  std::int64_t sent_ = 0, received_ = 0;
};

}  // namespace

int main(int count, char** arguments) {
  profile::prepare_process();
  const auto peers = run::join_mpi_peers("a rank");
  if (peers->size() != 2) {
    std::fputs("bench_transport: start it on two ranks (scripts/bench transport)\n", stderr);
    return 2;
  }
  std::vector<std::int64_t> sizes;
  for (int i = 1; i < count; ++i) sizes.push_back(std::atoll(arguments[i]));
  for (std::int64_t bytes = 1024; count == 1 && bytes <= 16 << 20; bytes *= 4) sizes.push_back(bytes);
  for (const std::int64_t bytes : sizes) {
    PingPong pair(*peers, bytes);
    const int repeats = static_cast<int>(std::clamp<std::int64_t>((256 << 20) / bytes, 1, 2000));
    std::vector<double> raw, ours, ratio;
    const bool huge = bytes > std::numeric_limits<int>::max();
    for (int round = 0; round < (huge ? 1 : kRounds); ++round) {
      raw.push_back(huge ? 0 : pair.raw(repeats));
      ours.push_back(pair.ours(repeats));
      ratio.push_back(ours.back() / raw.back());
    }
    if (peers->rank() == 0) {
      std::printf("%lld %.9f %.9f %.4f\n", static_cast<long long>(bytes), median(raw), median(ours),
                  median(ratio));
      std::fflush(stdout);
    }
  }
}
