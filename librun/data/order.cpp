#include "librun/data/order.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "libplan/plan/plan.h"
#include "libprofile/core/error.h"

namespace pp::run {

namespace {

std::uint64_t next(std::uint64_t& state) {  // splitmix64 (Steele, Lea, Flood, OOPSLA 2014)
  std::uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

void check_last(const EpochRequest& request, std::int64_t left) {
  if (left == 0 || left >= request.micro_batches) return;
  throw Error(ErrorKind::data, std::string(request.source) + ": the last mini-batch has " +
                                   std::to_string(left) + (left == 1 ? " sample" : " samples") +
                                   ", fewer than micro_batches = " + std::to_string(request.micro_batches) +
                                   "; leave it out with --drop-last");
}

void check_rounds(const EpochRequest& request, std::int64_t count) {
  const std::int64_t over = count % request.round;
  if (over == 0) return;
  const std::string fewer = count > over ? std::to_string(count - over) + " or " : "";
  throw Error(ErrorKind::data, "schedule " + std::string(request.schedule) + ": " + std::to_string(count) +
                                   " mini-batches are not a multiple of the " + std::to_string(request.round) +
                                   " replicas of stage " + std::to_string(request.round_stage) + "; use " +
                                   fewer + std::to_string(count - over + request.round) + ", or --drop-last");
}

}  // namespace

std::uint64_t draw_below(std::uint64_t bound, std::uint64_t& state) {
  const std::uint64_t incomplete = (0 - bound) % bound;  // 2^64 mod bound
  while (true) {
    const std::uint64_t draw = next(state);
    if (draw >= incomplete) return draw % bound;
  }
}

std::vector<std::int64_t> epoch_order(std::int64_t samples, std::uint64_t seed, int epoch, bool shuffle) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(samples));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  if (!shuffle) return order;
  std::uint64_t state = seed;
  state = next(state) ^ static_cast<std::uint64_t>(epoch);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[draw_below(i, state)]);
  return order;
}

int EpochShape::size(std::int64_t index) const {
  return static_cast<int>(std::min<std::int64_t>(mini_batch, samples - first(index)));
}

int EpochShape::step_size(Step step) const {
  return static_cast<int>(std::min(first(begin(step + 1)), samples) - first(begin(step)));
}

std::vector<int> EpochShape::step_sizes(Step step) const {
  std::vector<int> sizes;
  for (std::int64_t i = begin(step); i < begin(step + 1); ++i) {
    for (const int size : plan::micro_batch_sizes(this->size(i), micro_batches)) sizes.push_back(size);
  }
  return sizes;
}

EpochShape epoch_shape(const EpochRequest& request) {
  if (request.samples < request.mini_batch) {
    throw Error(ErrorKind::data, std::string(request.source) +
                                     ": mini_batch = " + std::to_string(request.mini_batch) +
                                     " exceeds the data set of " + std::to_string(request.samples) +
                                     " samples; plan with a smaller mini-batch or give more data");
  }
  EpochShape shape{request.samples, request.mini_batch, request.micro_batches,
                   request.samples / request.mini_batch};
  const std::int64_t left = request.samples % request.mini_batch;
  if (!request.drop_last) check_last(request, left);
  if (left >= request.micro_batches) ++shape.count;
  if (request.drop_last && shape.count >= request.round) shape.count -= shape.count % request.round;
  check_rounds(request, shape.count);
  return shape;
}

}  // namespace pp::run
