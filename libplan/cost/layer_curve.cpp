#include "libplan/cost/layer_curve.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/index.h"
#include "libprofile/core/json_reader.h"

namespace pp::plan {
namespace {

std::vector<const LayerPoint*> usable_points(const LayerProfile& layer) {
  std::vector<const LayerPoint*> points;
  for (const LayerPoint& point : layer.points) {
    if (!point.out_of_memory) points.push_back(&point);
  }
  if (points.empty()) {
    throw Error(ErrorKind::data,
                "no micro-batch size was profiled without running out of memory; profile smaller sizes");
  }
  return points;
}

[[noreturn]] void refuse(std::int64_t size, const std::vector<const LayerPoint*>& points) {
  const std::string low = std::to_string(points.front()->micro_batch_size);
  const std::string high = std::to_string(points.back()->micro_batch_size);
  const bool single = points.size() == 1;
  throw Error(ErrorKind::usage, "micro-batch size " + std::to_string(size) +
                                    (single ? " differs from the only profiled size " + low
                                            : " is outside the profiled " + low + ".." + high) +
                                    "; profile that size, choose another or allow " +
                                    (single ? "--linear-batch" : "--extrapolate"));
}

/// A weighted sum of two points; weight 0 is the lower one.
struct Mix {
  const LayerPoint* low;
  const LayerPoint* high;
  double weight;

  double operator()(double a, double b) const {
    return weight == 0 ? a : weight == 1 ? b : std::max(0.0, a + (b - a) * weight);
  }
  double time(TimeStat LayerPoint::*member) const {
    return (*this)((low->*member).median.count(), (high->*member).median.count());
  }
  std::optional<double> time(std::optional<TimeStat> LayerPoint::*member) const {
    if (!(low->*member) || !(high->*member)) return std::nullopt;
    return (*this)((low->*member)->median.count(), (high->*member)->median.count());
  }
  std::optional<PassTimes> times(std::optional<LayerTimes> LayerPoint::*member) const {
    const auto &a = low->*member, &b = high->*member;
    if (!a || !b) return std::nullopt;
    const auto mixed = [&](TimeStat LayerTimes::*time) {
      return (*this)(((*a).*time).median.count(), ((*b).*time).median.count());
    };
    return PassTimes{mixed(&LayerTimes::forward), mixed(&LayerTimes::backward),
                     mixed(&LayerTimes::input_gradient), mixed(&LayerTimes::weight_gradient)};
  }
  std::int64_t bytes(Bytes a, Bytes b) const {
    const double bytes = std::ceil((*this)(static_cast<double>(a.value), static_cast<double>(b.value)));
    if (bytes <= static_cast<double>(kMostInteger)) return static_cast<std::int64_t>(bytes);
    throw Error(ErrorKind::usage, "the profiled bytes continue to more than " + std::to_string(kMostInteger) +
                                      "; use a smaller micro-batch");
  }
  std::int64_t bytes(Bytes LayerPoint::*member) const { return bytes(low->*member, high->*member); }
  std::optional<std::int64_t> bytes(std::optional<Bytes> LayerPoint::*member) const {
    if (!(low->*member) || !(high->*member)) return std::nullopt;
    return bytes(*(low->*member), *(high->*member));
  }
};

PassTimes beyond(const LayerPrice& price, const PassTimes& times) {
  return {times.forward - price.forward, times.backward - price.backward,
          times.input_gradient - price.input_gradient, times.weight_gradient - price.weight_gradient};
}

/// Sets the times. Returns how much longer those were that it had.
PassTimes replace_times(LayerPrice& price, const PassTimes& times) {
  const auto put = [](double& time, double by) { return std::exchange(time, by) - by; };
  return {put(price.forward, times.forward), put(price.backward, times.backward),
          put(price.input_gradient, times.input_gradient), put(price.weight_gradient, times.weight_gradient)};
}

/// What was measured while all devices held the whole model as what a part takes, and the rest. Nobody is
/// faster for neighbours at work: where a device took longer alone, that is noise.
void set_apart(LayerPrice& price, const PassTimes& in_part, const std::optional<PassTimes>& alone) {
  if (alone) {
    price.beside = replace_times(
        price, {std::min(alone->forward, price.forward), std::min(alone->backward, price.backward),
                std::min(alone->input_gradient, price.input_gradient),
                std::min(alone->weight_gradient, price.weight_gradient)});
  }
  price.crowded = replace_times(price, in_part);
}

/// A profile without the split of the backward: halves, or all input gradient without trained parameters.
LayerPrice measured_price(const LayerProfile& layer, const Mix& mix) {
  const double backward = mix.time(&LayerPoint::backward);
  const std::optional<double> input = mix.time(&LayerPoint::input_gradient);
  const double estimate = trained_bytes(layer) > Bytes(0) ? backward / 2 : backward;
  return {.forward = mix.time(&LayerPoint::forward),
          .backward = backward,
          .input_gradient = input.value_or(estimate),
          .weight_gradient = mix.time(&LayerPoint::weight_gradient).value_or(input ? 0 : backward - estimate),
          .output = mix.bytes(&LayerPoint::output),
          .saved = mix.bytes(&LayerPoint::saved),
          .saved_input = mix.bytes(&LayerPoint::saved_input),
          .workspace = mix.bytes(&LayerPoint::workspace),
          .waiting = mix.bytes(&LayerPoint::waiting)};
}

LayerPrice price(const LayerProfile& layer, const Mix& mix) {
  LayerPrice price = measured_price(layer, mix);
  if (const auto first = mix.times(&LayerPoint::first)) price.first = beyond(price, *first);
  if (const auto in_part = mix.times(&LayerPoint::in_part))
    set_apart(price, *in_part, mix.times(&LayerPoint::alone));
  return price;
}

Spread mixed(const Mix& mix, const TimeStat& low, const TimeStat& high) {
  const Spread a = spread_of(low), b = spread_of(high);
  return {Seconds(mix(a.below.count(), b.below.count())), Seconds(mix(a.above.count(), b.above.count())), {}};
}

/// Halves that were not measured vary like the backward, as large as they are beside it.
LayerSpread spread(const LayerProfile& layer, const Mix& mix) {
  LayerSpread spread{mixed(mix, mix.low->forward, mix.high->forward),
                     mixed(mix, mix.low->backward, mix.high->backward),
                     {},
                     {}};
  const LayerPrice times = measured_price(layer, mix);
  const auto half = [&](std::optional<TimeStat> LayerPoint::*member, double time) {
    if (mix.low->*member && mix.high->*member) return mixed(mix, *(mix.low->*member), *(mix.high->*member));
    const double share = times.backward > 0 ? time / times.backward : 0;
    return spread.backward * share;
  };
  spread.input_gradient = half(&LayerPoint::input_gradient, times.input_gradient);
  spread.weight_gradient = half(&LayerPoint::weight_gradient, times.weight_gradient);
  return spread;
}

/// All zero at size 0.
LayerPoint origin_of(const LayerPoint& point) {
  LayerPoint origin;
  if (point.input_gradient) origin.input_gradient = TimeStat{};
  if (point.weight_gradient) origin.weight_gradient = TimeStat{};
  if (point.waiting) origin.waiting = Bytes(0);
  if (point.first) origin.first = LayerTimes{};
  if (point.in_part) origin.in_part = LayerTimes{};
  if (point.alone) origin.alone = LayerTimes{};
  return origin;
}

/// What `read` says of the layer and the points around `size`.
template <class Read>
auto read_curve(const LayerProfile& layer, std::int64_t size, const CurveOptions& options, const Read& read) {
  const std::vector<const LayerPoint*> points = usable_points(layer);
  const auto above = std::find_if(points.begin(), points.end(),
                                  [&](const LayerPoint* point) { return point->micro_batch_size >= size; });
  if (above != points.end() && (*above)->micro_batch_size == size) return read(layer, Mix{*above, *above, 0});
  if (points.size() == 1) {
    if (!options.linear_batch) refuse(size, points);
    const LayerPoint& only = *points.front();
    const LayerPoint origin = origin_of(only);
    return read(layer,
                Mix{&origin, &only, static_cast<double>(size) / static_cast<double>(only.micro_batch_size)});
  }
  const bool outside = above == points.begin() || above == points.end();
  if (outside && !options.extrapolate) refuse(size, points);
  const auto next = std::clamp<std::ptrdiff_t>(above - points.begin(), 1, std::ssize(points) - 1);
  const LayerPoint* low = points[at(next - 1)];
  const LayerPoint* high = points[at(next)];
  const double span = static_cast<double>(high->micro_batch_size - low->micro_batch_size);
  return read(layer, Mix{low, high, static_cast<double>(size - low->micro_batch_size) / span});
}

}  // namespace

Spread spread_of(const TimeStat& time) {
  if (time.samples == 0) return {};
  return {time.median - time.low, time.high - time.median, {}};
}

LayerPrice price_layer(const LayerProfile& layer, std::int64_t size, const CurveOptions& options) {
  return with_context("layer " + layer.name, [&] { return read_curve(layer, size, options, price); });
}

LayerPrice never_falling(LayerPrice price) {
  const auto clamp = [](double& time, double& rest) {
    time += std::min(0.0, rest);
    rest = std::max(0.0, rest);
  };
  clamp(price.forward, price.crowded.forward);
  clamp(price.backward, price.crowded.backward);
  clamp(price.input_gradient, price.crowded.input_gradient);
  clamp(price.weight_gradient, price.crowded.weight_gradient);
  return price;
}

LayerSpread spread_layer(const LayerProfile& layer, std::int64_t size, const CurveOptions& options) {
  return with_context("layer " + layer.name, [&] { return read_curve(layer, size, options, spread); });
}

}  // namespace pp::plan
