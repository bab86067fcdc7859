// The processes that were started together, as the link meter needs them: one rank each, messages of bytes, a
// sum over all. Plain values only: apps include this header.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace pp::run {

/// One rank's end. Calls block, and come from one thread.
class Ranks {
 public:
  Ranks(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~Ranks() = default;
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  virtual void send(int to, std::span<const std::byte> bytes) = 0;
  /// The next message of `from`, which has as many bytes.
  virtual void receive(int from, std::span<std::byte> bytes) = 0;
  /// Every rank gets the sums over all ranks; nobody leaves before everybody has called.
  virtual void all_reduce(std::span<float> values) = 0;

 private:
  int rank_, size_;
};

/// Name and version of the MPI library, `Open MPI v4.1.4`; empty in a build without MPI. Before joining, too.
std::string mpi_library();
/// Version of the NCCL library; empty in a build without it.
std::string nccl_library();

/// The ranks of mpirun or srun; a process that was started alone is one rank of one. At most once in a process.
/// An error of MPI itself ends all ranks. Throws pp::Error (usage) in a build without MPI.
std::unique_ptr<Ranks> join_mpi_ranks();

}  // namespace pp::run
