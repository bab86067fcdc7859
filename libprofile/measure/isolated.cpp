#include "libprofile/measure/isolated.h"

#include <utility>

#include "libprofile/measure/profile_part.h"
#include "libprofile/measure/statistics.h"

namespace pp::profile {
namespace {

/// Progress of one layer as progress of all.
class PartObserver final : public Observer {
 public:
  PartObserver(Observer& whole, int part, int parts) : whole_(whole), part_(part), parts_(parts) {}
  void progress(std::string_view phase, double done, Seconds remaining) override {
    const double rest = parts_ - part_ - 1;
    const Seconds each = done < 1 ? remaining / (1 - done) : remaining;
    whole_.progress(phase, (part_ + done) / parts_, remaining + rest * each);
  }
  void warning(std::string_view text) override { whole_.warning(text); }

 private:
  Observer& whole_;
  int part_, parts_;
};

/// The update of all layers takes as long as those of each together.
void add_optimizers(std::vector<OptimizerProfile>& sums, const std::vector<OptimizerProfile>& added) {
  for (const OptimizerProfile& one : added) {
    const auto sum = std::find_if(sums.begin(), sums.end(), [&](const auto& s) { return s.name == one.name; });
    if (sum == sums.end()) {
      sums.push_back(one);
      continue;
    }
    sum->parameters += one.parameters;
    sum->parts.insert(sum->parts.end(), one.parts.begin(), one.parts.end());
    sum->update = together(sum->update, one.update);
  }
}

}  // namespace

Profile profile_layers_alone(const ResolvedModel& model, const ProfileOptions& options, Observer& observer,
                             const Environment& environment) {
  const int layers = model.layer_count();
  ProfileOptions each = options;
  each.budget_per_size = options.budget_per_size / layers;
  Profile profile;
  for (int layer = 0; layer < layers; ++layer) {
    PartObserver part_observer(observer, layer, layers);
    const bool with_loss = layer + 1 == layers && model.graph.loss.has_value();
    Profile part =
        profile_part({model, {{layer}, with_loss}, each, part_observer, environment}, profile.kernels);
    if (layer == 0) {
      profile = std::move(part);
      continue;
    }
    profile.layers.push_back(std::move(part.layers.front()));
    profile.loss = std::move(part.loss);
    add_optimizers(profile.optimizers, part.optimizers);
    profile.kernels = std::move(part.kernels);
  }
  profile.mode = ProfileMode::isolated;
  profile.whole_model.clear();
  profile.estimated.push_back("saved_bytes");
  for (const char* key : {"outliers", "reference_kernel_change"}) profile.context.erase(key);
  return profile;
}

}  // namespace pp::profile
