#include "librun/transport/mpi/session.h"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "libprofile/core/error.h"
#include "librun/transport/backends.h"

namespace pp::run {

namespace {

// MPI_Init waits for all ranks, however long. While one of these exists that is bounded: the process then ends,
// and the launcher ends the others. Those that are here say so, which tells who is missing.
class StartWatch {
 public:
  StartWatch(std::string me, Seconds patience)
      : me_(std::move(me)), thread_([this, patience] { watch(patience); }) {}
  ~StartWatch() {
    {
      const std::lock_guard held(mutex_);
      begun_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;

 private:
  void watch(Seconds patience) {
    constexpr std::chrono::seconds kLastWords(2);
    std::unique_lock held(mutex_);
    if (changed_.wait_for(held, patience, [this] { return begun_; })) return;
    std::array<char, 256> host{};
    gethostname(host.data(), host.size() - 1);
    std::fprintf(stderr,
                 "%s: error: %s on %s: the ranks have not met for %s; those that do not say so hang, "
                 "were stopped, or cannot be reached: look at their hosts\n",
                 program_invocation_short_name, me_.c_str(), host.data(), to_text(patience).c_str());
    std::this_thread::sleep_for(kLastWords);  // the launcher ends the others when the first one has ended
    std::_Exit(EXIT_FAILURE);
  }

  const std::string me_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool begun_ = false;
  std::thread thread_;
};

}  // namespace

MpiSession::MpiSession(std::string me, Seconds patience) {
  const StartWatch watch(std::move(me), patience);
  int given = MPI_THREAD_SINGLE;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &given);
  if (given >= MPI_THREAD_SERIALIZED) return;
  MPI_Finalize();
  throw Error(ErrorKind::run,
              "this MPI library was built for one thread, several are needed (MPI_THREAD_SERIALIZED); use "
              "another build of it");
}

MpiSession::~MpiSession() { MPI_Finalize(); }

int MpiSession::rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int MpiSession::size() {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

std::string mpi_library() {
  std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  text.resize(static_cast<std::size_t>(length));
  std::ranges::replace(text, '\t', ' ');
  return text.substr(0, text.find_first_of(",\n"));
}

}  // namespace pp::run
