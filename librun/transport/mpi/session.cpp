#include "librun/transport/mpi/session.h"

#include <mpi.h>

#include "libprofile/core/error.h"

namespace pp::run {

MpiSession::MpiSession(Threads threads) {
  const int wanted = threads == Threads::one_at_a_time ? MPI_THREAD_SERIALIZED : MPI_THREAD_SINGLE;
  int given = MPI_THREAD_SINGLE;
  MPI_Init_thread(nullptr, nullptr, wanted, &given);
  if (given >= wanted) return;
  MPI_Finalize();
  throw Error(ErrorKind::run,
              "this MPI library was built for one thread, training needs several (MPI_THREAD_SERIALIZED); use "
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

}  // namespace pp::run
