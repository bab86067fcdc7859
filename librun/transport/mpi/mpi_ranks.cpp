#include <mpi.h>

#include <algorithm>
#include <limits>
#include <string>

#include "librun/transport/mpi/session.h"
#include "librun/transport/ranks.h"

namespace pp::run {

namespace {

class MpiRanks : private MpiSession, public Ranks {
 public:
  MpiRanks() : MpiSession(Threads::main_alone), Ranks(MpiSession::rank(), MpiSession::size()) {}
  using Ranks::rank;
  using Ranks::size;

  void send(int to, std::span<const std::byte> bytes) override {
    MPI_Send(bytes.data(), count(bytes.size()), MPI_BYTE, to, kTag, MPI_COMM_WORLD);
  }
  void receive(int from, std::span<std::byte> bytes) override {
    MPI_Recv(bytes.data(), count(bytes.size()), MPI_BYTE, from, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  void all_reduce(std::span<float> values) override {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), count(values.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }

 private:
  static constexpr int kTag = 0;

  // The sizes that are measured are far below MPI's limit.
  static int count(std::size_t size) {
    return static_cast<int>(std::min<std::size_t>(size, std::numeric_limits<int>::max()));
  }
};

}  // namespace

std::string mpi_library() {
  std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  text.resize(static_cast<std::size_t>(length));
  std::ranges::replace(text, '\t', ' ');
  return text.substr(0, text.find_first_of(",\n"));
}

std::unique_ptr<Ranks> join_mpi_ranks() { return std::make_unique<MpiRanks>(); }

}  // namespace pp::run
