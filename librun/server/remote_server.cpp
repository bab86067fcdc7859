#include "librun/server/remote_server.h"

#include "libprofile/core/error.h"

namespace pp::run {

using Kind = RequestHead::Kind;

RemoteServer::RemoteServer(Coordinator& run, Peers& peers, const Ends& ends, const at::Tensor& weights)
    : run_(run), peers_(peers), ends_(ends), room_(weights) {
  leaving_.keep(room_);
}

void RemoteServer::begin(int replica, const at::Tensor& into) {
  ask(replica, {.kind = Kind::begin}, nullptr, into, kWaitsToBegin);
}

void RemoteServer::finish(int replica, const FlatTensors* gradient, double rate) {
  send(replica, {.kind = Kind::finish, .rate = rate}, gradient);
}

void RemoteServer::leave(int replica, const FlatTensors* gradient, double rate, const at::Tensor& into,
                         model::Optimizer* keeper) {
  if (keeper) throw Error(ErrorKind::internal, "the server's optimizer is kept on its own rank");
  ask(replica, {.kind = Kind::leave, .rate = rate}, gradient, into, kWaitsToLeave);
}

void RemoteServer::close(int replica) { send(replica, {.kind = Kind::close}, nullptr); }

void RemoteServer::send(int replica, const RequestHead& head, const FlatTensors* gradient) {
  run_.poll(
      ends_.worker, [&] { return leaving_.done(); }, [] { return "its last push to leave"; });
  RequestHead request = head;
  request.pushes = gradient != nullptr;
  room_.set_head(request);
  if (gradient) room_.vector().copy_(gradient->flat);
  leaving_.add(peers_.send(request_address(ends_.rank, replica), room_.bytes(request), room_.bytes().size(),
                           Peers::Sent::gone));
}

void RemoteServer::ask(int replica, const RequestHead& head, const FlatTensors* gradient,
                       const at::Tensor& into, const char* waits_for) {
  RequestHead request = head;
  request.fetches = into.defined();
  Bundle answer;
  answer.keep(into);
  answer.add(peers_.receive(answer_address(ends_.rank, replica),
                            into.defined() ? bytes_of(into) : std::span<std::byte>()));
  send(replica, request, gradient);
  run_.poll(
      ends_.worker, [&] { return answer.done(); }, [&] { return waits_for; });
}

}  // namespace pp::run
