// Preloaded: messages between ranks that come late, or not at all, because their rank is stopped or killed
// (tests/lab/faults/fault.h). Kinds of calls: send, receive.
#include <mpi.h>

#include "tests/lab/faults/fault.h"

extern "C" int MPI_Isend(const void* bytes, int count, MPI_Datatype type, int to, int tag, MPI_Comm group,
                         MPI_Request* request) {
  pp::faults::next_call("send", "");
  return PMPI_Isend(bytes, count, type, to, tag, group, request);
}

extern "C" int MPI_Iallreduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op sum,
                              MPI_Comm group, MPI_Request* request) {
  pp::faults::next_call("send", "");
  return PMPI_Iallreduce(from, to, count, type, sum, group, request);
}

extern "C" int MPI_Irecv(void* bytes, int count, MPI_Datatype type, int from, int tag, MPI_Comm group,
                         MPI_Request* request) {
  pp::faults::next_call("receive", "");
  return PMPI_Irecv(bytes, count, type, from, tag, group, request);
}

extern "C" int MPI_Imrecv(void* bytes, int count, MPI_Datatype type, MPI_Message* message,
                          MPI_Request* request) {
  pp::faults::next_call("receive", "");
  return PMPI_Imrecv(bytes, count, type, message, request);
}
