#include "librun/server/parameter_server.h"

#include <algorithm>
#include <string>
#include <utility>

namespace pp::run {

namespace {

std::vector<model::OptimizerSlot> copied(std::vector<model::OptimizerSlot> state) {
  for (model::OptimizerSlot& slot : state) {
    for (at::Tensor& tensor : slot.tensors) tensor = tensor.clone();
  }
  return state;
}

}  // namespace

ParameterServer::ParameterServer(Coordinator& run, ServerOptions options)
    : options_(std::move(options)),
      monitor_(run),
      clocks_(static_cast<int>(options_.replicas.size()), options_.bound),
      places_(options_.replicas.size()) {
  if (options_.interleaving)
    interleaving_.emplace(*options_.interleaving, clocks_.replicas(), options_.first_step);
}

void ParameterServer::open(std::unique_ptr<WeightStore> store) {
  {
    const Monitor::Lock lock = monitor_.lock();
    store_ = std::move(store);
  }
  monitor_.notify();
}

void ParameterServer::begin(int replica, const at::Tensor& into) {
  {
    Monitor::Lock lock = monitor_.lock();
    const auto ready = [&] {
      return store_ && fetching_ == 0 && clocks_.may_begin(replica) && has_turn(replica);
    };
    monitor_.wait(lock, worker(replica), ready, [] { return "slower replicas, or its turn at the server"; });
    clocks_.begin(replica);
    places_[static_cast<std::size_t>(replica)].seen = figures_.updates;
    if (into.defined() && !unlocked()) store_->fetch(replica, into);
    pass();
  }
  if (interleaving_) monitor_.notify();
  if (into.defined() && unlocked()) store_->fetch(replica, into);
}

void ParameterServer::finish(int replica, const FlatTensors* gradient, double rate) {
  if (gradient && unlocked()) store_->push(replica, clocks_.of(replica), *gradient, rate);
  {
    Monitor::Lock lock = monitor_.lock();
    monitor_.wait(
        lock, worker(replica), [&] { return has_turn(replica); }, [] { return "its turn at the server"; });
    if (gradient && !unlocked()) store_->push(replica, clocks_.of(replica), *gradient, rate);
    const Step before = clocks_.least();
    clocks_.tick(replica);
    if (clocks_.least() > before) store_->complete(clocks_.least());
    const std::int64_t stale = figures_.updates - places_[static_cast<std::size_t>(replica)].seen;
    ++figures_.updates;
    figures_.stale += stale;
    figures_.largest_stale = std::max(figures_.largest_stale, stale);
    pass();
  }
  monitor_.notify();
}

void ParameterServer::leave(int replica, const FlatTensors* gradient, double rate, const at::Tensor& into,
                            model::Optimizer* keeper) {
  Monitor::Lock lock = monitor_.lock();
  Place& mine = places_[static_cast<std::size_t>(replica)];
  mine.left_over = gradient;
  mine.rate = rate;
  if (interleaving_) interleaving_->leave(replica, clocks_);
  const std::int64_t stretch = stretches_;
  if (++left_ == clocks_.replicas()) close_stretch();
  monitor_.notify();
  monitor_.wait(
      lock, worker(replica), [&] { return stretches_ > stretch; }, [] { return "the other replicas"; });
  if (into.defined()) store_->fetch(replica, into);
  if (keeper) keeper->set_state(copied(store_->state()));
  --fetching_;
  lock.unlock();
  monitor_.notify();
}

// Whoever comes last does it for all.
void ParameterServer::close_stretch() {
  for (std::size_t r = 0; r < places_.size(); ++r) {
    const FlatTensors* const left_over = std::exchange(places_[r].left_over, nullptr);
    if (left_over) store_->push(static_cast<int>(r), clocks_.least(), *left_over, places_[r].rate);
  }
  left_ = 0;
  fetching_ = clocks_.replicas();
  ++stretches_;
  if (interleaving_) interleaving_->restart(options_.first_step + figures_.updates, clocks_);
}

void ParameterServer::pass() {
  if (interleaving_) interleaving_->pass(clocks_);
}

ServerFigures ParameterServer::figures() {
  const Monitor::Lock lock = monitor_.lock();
  ServerFigures figures = figures_;
  figures.largest_lead = clocks_.widest();
  return figures;
}

}  // namespace pp::run
