// check_plan(): everything that can be wrong with a plan before work starts.
#include <map>
#include <set>
#include <string>

#include "libplan/cost/stage_memory.h"
#include "libplan/plan/plan.h"
#include "libplan/plan/programs.h"
#include "libplan/schedule/placement.h"
#include "libplan/schedule/versions.h"
#include "libprofile/core/cluster.h"
#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

std::string in_quotes(std::string_view name) { return std::string("\"").append(name).append("\""); }

std::string pointer(std::string_view list, std::size_t i, std::string_view member = {}) {
  std::string text("/");
  text.append(list).append("/").append(std::to_string(i));
  if (!member.empty()) text.append("/").append(member);
  return text;
}

[[noreturn]] void fail(const std::string& where, const std::string& message) {
  throw Error(ErrorKind::data, where + ": " + message);
}

class Checker {
 public:
  explicit Checker(const Plan& plan) : plan_(plan), model_(resolve(plan.model, "/model")) {}

  void run() {
    check_training();
    check_devices();
    check_workers();
    check_stages();
    check_layers();
    check_edges();
    check_tied();
    check_programs();
    check_recompute(plan_);
    check_prediction();
  }

 private:
  void check_training() {
    const ScheduleRow* row = find_schedule(plan_.schedule.name);
    if (row == nullptr) {
      std::string names;
      for (const ScheduleRow& known : schedule_table())
        names.append(names.empty() ? "" : ", ").append(known.name);
      fail("/schedule/name", "unknown name " + in_quotes(plan_.schedule.name) + "; use one of " + names);
    }
    synchronous_ = row->synchronous;
    const WeightPolicy policy = plan_.schedule.weight_policy;
    if (std::ranges::count(row->policies, policy) == 0) {
      fail("/schedule/weight_policy", in_quotes(name_of(policy)) + " does not go with schedule " +
                                          plan_.schedule.name + "; use " +
                                          in_quotes(name_of(row->default_policy())));
    }
    if (!row->no_plan.empty())
      fail("/schedule/name", in_quotes(plan_.schedule.name) + " can be simulated, not planned and run");
    check_chunks(*row);
    if (plan_.training.micro_batches > plan_.training.mini_batch) {
      fail("/training/micro_batches", std::to_string(plan_.training.micro_batches) +
                                          " exceeds the mini-batch of " +
                                          std::to_string(plan_.training.mini_batch) + " samples");
    }
    if (!synchronous_ && !groups(*row, policy) && plan_.training.micro_batches != 1) {
      fail("/training/micro_batches", "is " + std::to_string(plan_.training.micro_batches) + ", schedule " +
                                          plan_.schedule.name + " updates after every micro-batch and needs 1");
    }
  }

  void check_chunks(const ScheduleRow& row) {
    const int chunks = plan_.schedule.chunks_per_worker;
    const std::string found = "is " + std::to_string(chunks) + ", schedule " + plan_.schedule.name + " runs ";
    if (row.chunks == Chunks::one && chunks != 1)
      fail("/schedule/chunks_per_worker", found + "1 stage per worker");
    if (row.chunks == Chunks::two && chunks != 2)
      fail("/schedule/chunks_per_worker", found + "2 stages per worker");
    if (chunks < 1) fail("/schedule/chunks_per_worker", found + "at least 1 stage per worker");
    several_stages_ = row.replication == Replication::none || row.replication == Replication::pipelines;
  }

  void check_devices() {
    int last = -1;
    for (std::size_t i = 0; i < plan_.devices.size(); ++i) {
      if (!devices_.emplace(plan_.devices[i].id, i).second) {
        fail(pointer("devices", i, "id"), std::to_string(number(plan_.devices[i].id)) + " stands twice");
      }
      const int slot = plan_.devices[i].slot.value_or(static_cast<int>(i));
      if (slot <= last) {
        fail(pointer("devices", i, "slot"),
             std::to_string(slot) + " is not above the " + std::to_string(last) + " in front of it");
      }
      last = slot;
    }
  }

  void check_workers() {
    if (plan_.workers.empty()) fail("/workers", "must not be empty; a plan needs at least one worker");
    for (std::size_t i = 0; i < plan_.workers.size(); ++i) {
      const Worker& worker = plan_.workers[i];
      if (index(worker.id) != i) {
        fail(pointer("workers", i, "id"),
             "is " + std::to_string(number(worker.id)) + "; number the workers 0, 1, 2, ... in their order");
      }
      if (!devices_.contains(worker.device)) {
        fail(pointer("workers", i, "device"), std::to_string(number(worker.device)) + " is not in /devices");
      }
    }
  }

  void check_stages() {
    if (plan_.stages.empty()) fail("/stages", "must not be empty; a plan needs at least one stage");
    std::vector<int> stage_of(plan_.workers.size(), -1);
    for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
      const Stage& stage = plan_.stages[s];
      if (stage.layers.empty())
        fail(pointer("stages", s, "layers"), "must not be empty; give the stage at least one layer");
      if (stage.workers.empty())
        fail(pointer("stages", s, "workers"), "must not be empty; give the stage at least one worker");
      for (const WorkerId worker : stage.workers) {
        if (index(worker) >= plan_.workers.size()) {
          fail(pointer("stages", s, "workers"), std::to_string(number(worker)) + " is not in /workers");
        }
        int& owner = stage_of[index(worker)];
        if (owner >= 0 && !several_stages_) {
          fail(pointer("stages", s, "workers"), "worker " + std::to_string(number(worker)) + " runs stage " +
                                                    std::to_string(owner) + " already");
        }
        owner = static_cast<int>(s);
      }
    }
    for (std::size_t w = 0; w < stage_of.size(); ++w) {
      if (stage_of[w] < 0) fail(pointer("workers", w), "is in no stage; remove the worker");
    }
  }

  void check_layers() {
    std::map<std::string_view, int> layers;
    for (int l = 0; l < model_.layer_count(); ++l) layers.emplace(model_.graph.layers[at(l)].name, l);
    place_.assign(layers.size(), {-1, 0});
    for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
      for (std::size_t i = 0; i < plan_.stages[s].layers.size(); ++i) {
        const std::string& name = plan_.stages[s].layers[i];
        const auto found = layers.find(name);
        if (found == layers.end())
          fail(pointer("stages", s, "layers"), "layer " + in_quotes(name) + " is not in the model");
        auto& place = place_[at(found->second)];
        if (place.first >= 0) {
          fail(pointer("stages", s, "layers"),
               "layer " + in_quotes(name) + " is in stage " + std::to_string(place.first) + " already");
        }
        place = {static_cast<int>(s), static_cast<int>(i)};
      }
    }
    for (const auto& [name, l] : layers) {
      if (place_[at(l)].first < 0) fail("/stages", "layer " + in_quotes(name) + " is in no stage");
    }
  }

  void check_edges() {
    for (int l = 0; l < model_.layer_count(); ++l) {
      const auto consumer = at(l);
      for (const TensorSource& source : model_.layers[consumer].sources) {
        if (source.kind != TensorSource::Kind::layer) continue;
        const auto producer = at(source.index);
        if (place_[producer] < place_[consumer]) {
          add_skip(place_[producer].first, place_[consumer].first);
          continue;
        }
        fail(pointer("stages", at(place_[consumer].first), "layers"),
             in_quotes(plan_.model.layers[consumer].name) + " reads " +
                 in_quotes(plan_.model.layers[producer].name) + ", which stands " +
                 (place_[producer].first == place_[consumer].first
                      ? std::string("behind it")
                      : "in stage " + std::to_string(place_[producer].first)) +
                 "; a layer comes after what it reads");
      }
    }
    for (const TensorSource& source : model_.loss_sources) {
      if (source.kind == TensorSource::Kind::layer) {
        add_skip(place_[at(source.index)].first, static_cast<int>(plan_.stages.size()) - 1);
      }
    }
  }

  void add_skip(int from, int to) {
    if (to > from + 1) skips_.emplace(StageId{from}, StageId{to});
  }

  /// Users of one parameter stand in one stage, or /tied lists their stages.
  void check_tied() {
    const std::vector<TiedParameter> apart = tied_parameters(model_, plan_.stages);
    if (plan_.tied == apart) return;
    if (!plan_.tied.empty() && apart.empty())
      fail("/tied", "must be empty: layers that share weights are in one stage");
    if (plan_.tied.empty()) refuse_separation();
    std::string expected;
    for (const TiedParameter& tied : apart) {
      expected.append(expected.empty() ? "" : "; ").append(tied.parameter).append(" of stages");
      for (const StageId stage : tied.stages) expected.append(" ").append(std::to_string(number(stage)));
    }
    fail("/tied", "must list what layers of several stages share: " + expected);
  }

  [[noreturn]] void refuse_separation() {
    for (std::size_t user = 0;; ++user) {
      const auto owner = at(model_.layers[user].weights_layer);
      if (place_[owner].first == place_[user].first) continue;
      fail(pointer("stages", at(place_[user].first), "layers"),
           in_quotes(plan_.model.layers[user].name) + " shares weights with " +
               in_quotes(plan_.model.layers[owner].name) + " of stage " + std::to_string(place_[owner].first) +
               "; put both in one stage");
    }
  }

  void check_programs() {
    for (std::size_t w = 0; w < plan_.workers.size(); ++w) {
      const bool stream = plan_.workers[w].program.stream.has_value();
      if (stream == !synchronous_) continue;
      fail(pointer("workers", w), "has a " + std::string(stream ? "stream" : "program") + "; schedule " +
                                      plan_.schedule.name + " needs a " + (stream ? "program" : "stream"));
    }
    ProgramSet set = program_set(plan_);
    set.skips.assign(skips_.begin(), skips_.end());
    with_context("/workers", [&] {
      if (set.rules == RuleSet::clocked) check_clocked();
      validate(set);
      if (set.rules != RuleSet::clocked) check_owners(set);
      if (!synchronous_) live_versions(set, plan_.schedule.weight_policy);
    });
  }

  /// Frames move on by one stage per step, whatever they pass on.
  void check_clocked() {
    if (skips_.empty()) return;
    const auto& [from, to] = *skips_.begin();
    throw Error(ErrorKind::data, "stage " + std::to_string(number(to)) + " reads from stage " +
                                     std::to_string(number(from)) + "; schedule " + plan_.schedule.name +
                                     " hands frames to the next stage only, cut the model elsewhere");
  }

  void check_prediction() {
    const Prediction& predicted = plan_.predicted;
    if (!predicted.workers.empty() && predicted.workers.size() != plan_.workers.size()) {
      fail("/predicted/workers", "has " + std::to_string(predicted.workers.size()) + " entries for " +
                                     std::to_string(plan_.workers.size()) + " workers");
    }
    if (!predicted.stages.empty() && predicted.stages.size() != plan_.stages.size()) {
      fail("/predicted/stages", "has " + std::to_string(predicted.stages.size()) + " entries for " +
                                    std::to_string(plan_.stages.size()) + " stages");
    }
    for (std::size_t e = 0; e < predicted.edges.size(); ++e) {
      const StageEdge& edge = predicted.edges[e];
      if (edge.from < edge.to && index(edge.to) < plan_.stages.size()) continue;
      fail(pointer("predicted/edges", e),
           "must lead from a stage to a later one, below " + std::to_string(plan_.stages.size()));
    }
    for (std::size_t l = 0; l < predicted.links.size(); ++l) {
      if (std::max(index(predicted.links[l].from), index(predicted.links[l].to)) < plan_.workers.size())
        continue;
      fail(pointer("predicted/links", l),
           "must lead between workers, below " + std::to_string(plan_.workers.size()));
    }
    if (!predicted.stages.empty() && predicted.tied_all_reduce.size() != plan_.tied.size()) {
      fail("/predicted/tied_all_reduce_s", "has " + std::to_string(predicted.tied_all_reduce.size()) +
                                               " entries for " + std::to_string(plan_.tied.size()) +
                                               " entries of /tied");
    }
    for (const auto& [key, scale] : {std::pair{"scale", &Prediction::micro_batch_scale},
                                     std::pair{"bytes", &Prediction::micro_batch_bytes}}) {
      const std::size_t entries = (predicted.*scale).size();
      if (entries == 0 || entries == at(plan_.training.micro_batches)) continue;
      fail(std::string("/predicted/micro_batch_").append(key),
           "has " + std::to_string(entries) + " entries for " + std::to_string(plan_.training.micro_batches) +
               " micro-batches");
    }
    for (std::size_t w = 0; w < predicted.workers.size(); ++w) check_memory(w);
  }

  const Device& device_of(std::size_t worker) const {
    return plan_.devices[devices_.at(plan_.workers[worker].device)];
  }

  /// Of the worker and those before it that run on the same hardware.
  void check_memory(std::size_t w) {
    const Device& device = device_of(w);
    if (device.memory.value == 0) return;
    auto& [peaks, sharers] = checked_[hardware_of(device)];
    peaks += plan_.predicted.workers[w].memory.peak;
    sharers.push_back(w);
    if (peaks <= device.memory) return;
    std::string others;
    for (const std::size_t other : sharers) {
      if (other != w) others += (others.empty() ? "" : ", ") + std::to_string(other);
    }
    const std::string sharing =
        others.empty() ? "" : " with that of worker " + others + " on the same hardware";
    fail(pointer("predicted/workers", w, "peak_bytes"),
         std::to_string(peaks.value) + sharing + " exceeds the " + std::to_string(device.memory.value) +
             " bytes of " + device_name(plan_.devices, device) + "; use more stages or smaller micro-batches");
  }

  const Plan& plan_;
  ResolvedModel model_;
  bool synchronous_ = true;
  bool several_stages_ = false;              ///< a worker may hold more than one
  std::map<DeviceId, std::size_t> devices_;  ///< id -> position
  std::vector<std::pair<int, int>> place_;   ///< per layer: stage, position in it
  std::set<std::pair<StageId, StageId>> skips_;
  struct Shared {
    Bytes peaks;
    std::vector<std::size_t> workers;
  };
  std::map<Hardware, Shared> checked_;  ///< of the workers whose memory was looked at
};

}  // namespace

void check_plan(const Plan& plan) { Checker(plan).run(); }

}  // namespace pp::plan
