#include "libprofile/measure/profiled_devices.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "libprofile/device/machine.h"
#include "libprofile/model/errors.h"

namespace pp::profile {

namespace {

void append(PassTimes& times, const PassTimes& more) {
  for (std::size_t phase = 0; phase < times.size(); ++phase)
    times[phase].insert(times[phase].end(), more[phase].begin(), more[phase].end());
}

}  // namespace

std::vector<ModelPart> model_parts(const ResolvedModel& model, int count, std::span<const double> costs) {
  const int layers = model.layer_count();
  const double all = std::accumulate(costs.begin(), costs.end(), 0.0);
  std::vector<ModelPart> parts;
  double done = 0;
  int layer = 0;
  for (int part = 0; part < count; ++part) {
    const int last = layers - (count - part - 1);  // the parts behind need a layer each
    const double end = all * (part + 1) / count;
    ModelPart& next = parts.emplace_back();
    const auto belongs_here = [&] {
      return part + 1 == count || done + costs[static_cast<std::size_t>(layer)] / 2 < end;
    };
    do {
      next.layers.push_back(layer);
      done += costs[static_cast<std::size_t>(layer++)];
    } while (layer < last && belongs_here());
  }
  parts.back().with_loss = model.graph.loss.has_value();
  return parts;
}

bool are_parts_measured(const ResolvedModel& model, const ModelPart& part, int devices) {
  return devices > 1 && model.layer_count() >= devices && part.positions() == whole_model(model).positions();
}

std::vector<double> layer_costs(const VisitTimes& times, int layers) {
  std::vector<double> costs(static_cast<std::size_t>(layers));
  for (std::size_t position = 0; position < times.layers.front().front().size(); ++position) {
    double shortest = std::numeric_limits<double>::infinity();
    for (const PassTimes& pass : times.layers) {
      double sum = 0;
      for (const std::vector<double>& phase : pass) sum += position < phase.size() ? phase[position] : 0;
      shortest = std::min(shortest, sum);
    }
    costs[std::min(position, costs.size() - 1)] += shortest;
  }
  return costs;
}

VisitTimes joined(const std::vector<VisitTimes>& parts) {
  VisitTimes all = parts.front();
  for (std::size_t part = 1; part < parts.size(); ++part) {
    for (std::size_t pass = 0; pass < all.layers.size(); ++pass)
      append(all.layers[pass], parts[part].layers[pass]);
    if (all.first) append(*all.first, *parts[part].first);
  }
  return all;
}

namespace {

std::optional<at::ScalarType> scalar_type(std::optional<Autocast> autocast) {
  if (!autocast) return std::nullopt;
  return *autocast == Autocast::float16 ? at::kHalf : at::kBFloat16;
}

}  // namespace

ProfiledDevices::ProfiledDevices(const Subject& subject, std::vector<std::int64_t> micro_batch_sizes)
    : subject_(subject),
      micro_batch_sizes_(std::move(micro_batch_sizes)),
      probes_(static_cast<std::size_t>(count())),
      whole_(static_cast<std::size_t>(count())),
      gang_(count(), [this](int device) { enter(device); }) {
  const Bytes memory(subject.environment.memory.value / count());
  for (int device = 0; device < count(); ++device) accounts_.emplace_back(memory);
  gang_.run([&](int device) {
    const auto d = static_cast<std::size_t>(device);
    const ChargeMemory host(host_memory_), charged(accounts_[d], subject_.options.devices.kind);
    whole_[d] = make_runner(subject_.part, d);
  });
}

at::Device ProfiledDevices::device() const {
  return tensor_device(subject_.options.devices.kind, subject_.options.devices.first);
}

std::unique_ptr<ModelRunner> ProfiledDevices::make_runner(const ModelPart& part, std::size_t device) {
  const ProfileOptions& options = subject_.options;
  RunnerOptions passes{.micro_batch_sizes = micro_batch_sizes_,
                       .dtype = options.dtype,
                       .memory_format = options.memory_format,
                       .autocast = scalar_type(options.autocast),
                       .seed = options.seed};
  if (whole_[device]) passes.sent = whole_[device]->output_types();
  std::unique_ptr<ModelRunner> runner;
  model::detail::guarded([] { return "weights and gradients"; },
                         [&] {
                           runner = std::make_unique<ModelRunner>(subject_.model, part, std::move(passes),
                                                                  accounts_[device], this->device(),
                                                                  *probes_[device].timer);
                         });
  return runner;
}

void ProfiledDevices::enter(int device) {
  const DeviceSet& devices = subject_.options.devices;
  const std::vector<int>& cores = subject_.environment.machine.cores;
  if (!is_cuda()) pin_thread(cores_of(devices, device, cores));
  enter_device(this->device(),
               std::max(1, is_cuda() ? static_cast<int>(cores.size()) / devices.count : devices.cores));
  take_library_memory(this->device());
  probes_[static_cast<std::size_t>(device)] = make_probes(this->device(), subject_.environment.clock);
}

void ProfiledDevices::run(const std::function<void(int device, ModelRunner& runner)>& work) {
  gang_.run([&](int device) {
    const auto d = static_cast<std::size_t>(device);
    const ChargeMemory host(host_memory_), charged(accounts_[d], subject_.options.devices.kind);
    work(device, *whole_[d]);
  });
}

void ProfiledDevices::add_parts(const std::vector<ModelPart>& parts,
                                const std::function<void(ModelRunner& part)>& prepare) {
  parts_.resize(whole_.size());
  try {
    run([&](int device, ModelRunner&) {
      const auto d = static_cast<std::size_t>(device);
      parts_[d] = make_runner(parts[d], d);
      parts_[d]->use(kernels_);
      prepare(*parts_[d]);
    });
  } catch (const model::OutOfMemory&) {
    drop_parts();
    throw;
  }
}

bool ProfiledDevices::have_room(Bytes bytes) const {
  return std::ranges::all_of(
      accounts_, [&](const MemoryAccount& account) { return account.live() + bytes <= account.limit(); });
}

void ProfiledDevices::use(const std::vector<KernelChoice>& kernels) {
  kernels_ = std::make_shared<const model::Kernels>(kernels);
  for (const Runners* runners : {&whole_, &parts_}) {
    for (const std::unique_ptr<ModelRunner>& runner : *runners) runner->use(kernels_);
  }
}

}  // namespace pp::profile
