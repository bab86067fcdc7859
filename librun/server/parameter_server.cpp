#include "librun/server/parameter_server.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace pp::run {

namespace {

Bytes bytes_in(const at::Tensor& vector) { return Bytes(static_cast<std::int64_t>(vector.nbytes())); }

std::vector<model::OptimizerSlot> copied(std::vector<model::OptimizerSlot> state) {
  for (model::OptimizerSlot& slot : state) {
    for (at::Tensor& tensor : slot.tensors) tensor = tensor.clone();
  }
  return state;
}

}  // namespace

void DownpourStore::fetch(int /*replica*/, const at::Tensor& into) const { into.copy_(weights_.flat); }

void DownpourStore::push(int /*replica*/, Step /*clock*/, const FlatTensors& gradient, double rate) {
  optimizer_->step(weights_.parameters, gradient.parameters, rate);
}

void HogwildStore::fetch(int /*replica*/, const at::Tensor& into) const { into.copy_(weights_.flat); }

void HogwildStore::push(int replica, Step /*clock*/, const FlatTensors& gradient, double rate) {
  optimizers_[static_cast<std::size_t>(replica)]->step(weights_.parameters, gradient.parameters, rate);
}

void ClockedStore::fetch(int replica, const at::Tensor& into) const {
  into.copy_(weights_.flat);
  if (apply_ == Apply::sum || pending_.empty()) return;
  const FlatTensors seen = with_places(into, weights_);
  for (const auto& [clock, updates] : pending_) {
    const auto own = updates.find(replica);
    if (own == updates.end()) continue;
    optimizer_->step(seen.parameters, own->second.gradient.parameters, own->second.rate);
  }
}

void ClockedStore::push(int replica, Step clock, const FlatTensors& gradient, double rate) {
  pending_[clock].emplace(replica, Update{with_places(gradient.flat.clone(), gradient), rate});
}

void ClockedStore::complete(Step clock) {
  while (!pending_.empty() && pending_.begin()->first < clock) {
    Updates& updates = pending_.begin()->second;
    if (apply_ == Apply::sum) {
      apply_sum(updates);
    } else {
      for (auto& [replica, update] : updates)
        optimizer_->step(weights_.parameters, update.gradient.parameters, update.rate);
    }
    pending_.erase(pending_.begin());
  }
}

void ClockedStore::apply_sum(Updates& updates) {
  const Update& first = updates.begin()->second;
  for (auto other = std::next(updates.begin()); other != updates.end(); ++other)
    first.gradient.flat.add_(other->second.gradient.flat);
  optimizer_->step(weights_.parameters, first.gradient.parameters, first.rate);
}

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
    monitor_.wait(
        lock, worker(replica), [&] { return may_begin(replica); }, [] { return kWaitsToBegin; });
    note_begin(replica, into);
  }
  if (interleaving_) monitor_.notify();
  if (into.defined() && unlocked()) store_->fetch(replica, into);
}

bool ParameterServer::try_begin(int replica, const at::Tensor& into) {
  {
    const Monitor::Lock lock = monitor_.lock();
    if (!may_begin(replica)) return false;
    note_begin(replica, into);
  }
  if (interleaving_) monitor_.notify();
  return true;
}

void ParameterServer::note_begin(int replica, const at::Tensor& into) {
  clocks_.begin(replica);
  place(replica).seen = figures_.updates;
  if (into.defined()) figures_.fetched += bytes_in(into);
  if (into.defined() && !unlocked()) store_->fetch(replica, into);
  pass();
}

void ParameterServer::finish(int replica, const FlatTensors* gradient, double rate) {
  if (gradient && unlocked()) store_->push(replica, clocks_.of(replica), *gradient, rate);
  {
    Monitor::Lock lock = monitor_.lock();
    monitor_.wait(
        lock, worker(replica), [&] { return has_turn(replica); }, [] { return "its turn at the server"; });
    note_end(replica, gradient, rate);
  }
  monitor_.notify();
}

bool ParameterServer::try_finish(int replica, const FlatTensors* gradient, double rate) {
  {
    const Monitor::Lock lock = monitor_.lock();
    if (!has_turn(replica)) return false;
    note_end(replica, gradient, rate);
  }
  monitor_.notify();
  return true;
}

void ParameterServer::note_end(int replica, const FlatTensors* gradient, double rate) {
  if (gradient) figures_.pushed += bytes_in(gradient->flat);
  if (gradient && !unlocked()) store_->push(replica, clocks_.of(replica), *gradient, rate);
  const Step before = clocks_.least();
  clocks_.tick(replica);
  if (clocks_.least() > before) store_->complete(clocks_.least());
  const bool synchronous = options_.policy == plan::WeightPolicy::server;
  const std::int64_t stale = synchronous ? 0 : figures_.updates - place(replica).seen;
  ++figures_.updates;
  figures_.stale += stale;
  figures_.largest_stale = std::max(figures_.largest_stale, stale);
  pass();
}

void ParameterServer::leave(int replica, const FlatTensors* gradient, double rate, const at::Tensor& into,
                            model::Optimizer* keeper) {
  arrive(replica, gradient, rate);
  {
    Monitor::Lock lock = monitor_.lock();
    monitor_.wait(
        lock, worker(replica), [&] { return all_left(replica); }, [] { return kWaitsToLeave; });
    depart(replica, into);
    if (keeper) keeper->set_state(copied(store_->state()));
  }
  monitor_.notify();
}

void ParameterServer::arrive(int replica, const FlatTensors* gradient, double rate) {
  {
    const Monitor::Lock lock = monitor_.lock();
    Place& mine = place(replica);
    mine.left_over = gradient;
    mine.rate = rate;
    mine.range = ranges_;
    if (interleaving_) interleaving_->leave(replica, clocks_);
    if (++left_ == clocks_.replicas()) close_stretch();
  }
  monitor_.notify();
}

bool ParameterServer::try_depart(int replica, const at::Tensor& into) {
  {
    const Monitor::Lock lock = monitor_.lock();
    if (!all_left(replica)) return false;
    depart(replica, into);
  }
  monitor_.notify();
  return true;
}

void ParameterServer::depart(int replica, const at::Tensor& into) {
  if (into.defined()) {
    figures_.fetched += bytes_in(into);
    store_->fetch(replica, into);
  }
  --fetching_;
}

// Whoever comes last does it for all.
void ParameterServer::close_stretch() {
  for (std::size_t r = 0; r < places_.size(); ++r) {
    const FlatTensors* const left_over = std::exchange(places_[r].left_over, nullptr);
    if (!left_over) continue;
    figures_.pushed += bytes_in(left_over->flat);
    store_->push(static_cast<int>(r), clocks_.least(), *left_over, places_[r].rate);
  }
  left_ = 0;
  fetching_ = clocks_.replicas();
  ++ranges_;
  if (interleaving_) interleaving_->restart(options_.first_step + figures_.updates, clocks_);
}

void ParameterServer::pass() {
  if (interleaving_) interleaving_->pass(clocks_);
}

ServerFigures ParameterServer::figures(WorkerId caller) {
  Monitor::Lock lock = monitor_.lock();
  monitor_.wait(
      lock, caller, [&] { return fetching_ == 0; }, [] { return "the other replicas to fetch"; });
  ServerFigures figures = figures_;
  figures.largest_lead = clocks_.widest();
  return figures;
}

}  // namespace pp::run
