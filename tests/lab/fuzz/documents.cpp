// fuzz_documents: a document of some kind, changed in a few places, goes through everything that reads it: its
// reader and writer, and pp-plan's commands. It is accepted or refused with a message; never more than that.
#include <nlohmann/json.hpp>

#include "libplan/peers/dnn_partitioning.h"
#include "libplan/peers/pipedream_text.h"
#include "libplan/peers/piper_json.h"
#include "libplan/schedule/program_text.h"
#include "libprofile/core/file.h"
#include "libprofile/model/families/hugging_face.h"
#include "libprofile/report/diff.h"
#include "libprofile/report/document_findings.h"
#include "libprofile/report/layer_svg.h"
#include "libprofile/report/merge.h"
#include "tests/lab/fuzz/campaign.h"
#include "tests/lab/fuzz/corpus.h"
#include "tests/lab/fuzz/mutate_json.h"
#include "tests/lab/fuzz/mutate_programs.h"
#include "tests/lab/fuzz/mutate_text.h"
#include "tests/lab/fuzz/runtime_documents.h"
#include "tests/lab/fuzz/tool.h"
#include "tests/support/schema.h"

namespace pp::fuzz {
namespace {

enum Kind : std::size_t {
  kModel,
  kConfig,
  kProfile,
  kCluster,
  kPlan,
  kCsv,
  kPipeDream,
  kPiper,
  kDnn,
  kCommand,
  kRuntime
};
constexpr std::array kNames{"model",
                            "config.json",
                            "profile",
                            "cluster",
                            "plan",
                            "programs.csv",
                            "graph.txt",
                            "piper",
                            "dnn-partitioning",
                            "command line",
                            "report, checkpoint, data, safetensors"};

/// Made before the first case, so that every child has it.
struct Corpus {
  std::vector<Json> models, configs = config_corpus(), profiles, clusters, plans;
  std::vector<std::string> profile_texts, cluster_texts, plan_texts, csv = csv_corpus(),
                                                                     pipedream = pipedream_corpus();
  std::vector<Json> piper = piper_corpus(), dnn = dnn_partitioning_corpus();
  std::vector<std::vector<std::string>> commands = command_corpus(), options = option_corpus();

  Corpus() {
    for (const ModelGraph& model : model_corpus()) models.push_back(to_json(model));
    for (const Profile& profile : profile_corpus()) profiles.push_back(to_json(profile));
    for (const Cluster& cluster : cluster_corpus()) clusters.push_back(to_json(cluster));
    for (const plan::Plan& plan : plan_corpus()) plans.push_back(to_json(plan));
    for (const Json& json : profiles) profile_texts.push_back(dump_json(json));
    for (const Json& json : clusters) cluster_texts.push_back(dump_json(json));
    for (const Json& json : plans) plan_texts.push_back(dump_json(json));
  }
};

/// One case; the first finding ends it.
class Documents {
 public:
  Documents(const Corpus& corpus, Case& one) : corpus_(corpus), one_(one), random_(one.seed()) {}

  Result run() {
    static constexpr std::array kWeights{kModel,   kModel,   kConfig,  kProfile,   kProfile, kProfile,
                                         kCluster, kCluster, kPlan,    kPlan,      kPlan,    kPlan,
                                         kPlan,    kCsv,     kCsv,     kPipeDream, kPiper,   kDnn,
                                         kCommand, kCommand, kCommand, kRuntime,   kRuntime};
    kind_ = random_.pick(kWeights);
    switch (kind_) {
      case kModel: model(); break;
      case kConfig: config(); break;
      case kProfile: profile(); break;
      case kCluster: cluster(); break;
      case kPlan: plan(); break;
      case kCsv: csv(); break;
      case kPipeDream:
      case kPiper:
      case kDnn: foreign(); break;
      case kCommand: command(); break;
      case kRuntime: runtime(); break;
    }
    return {kind_ * 2 + (accepted_ ? 0 : 1), finding_};
  }

 private:
  void fail(const std::string& what) {
    if (finding_.empty()) finding_ = what;
  }

  void write(const std::string& name, const std::string& text) { write_file(one_.folder() / name, text); }

  /// Runs a command; what may not be is a finding. Nothing runs after a finding.
  Ran tool(std::vector<std::string> arguments) {
    if (!finding_.empty()) return {2, {}, {}};
    if (searches(arguments)) arguments.insert(arguments.end(), {"--time-limit", "10s"});
    std::string line = "pp-plan";
    for (const std::string& argument : arguments) line += ' ' + argument;
    one_.doing(line);
    Ran ran = run_pp_plan(arguments);
    if (const std::string wrong = wrong_end(ran); !wrong.empty()) fail(wrong);
    return ran;
  }

  static bool searches(const std::vector<std::string>& arguments) {
    const bool plans = arguments.front() == "make" || arguments.front() == "compare";
    return plans && std::ranges::count(arguments, "--cost-model") == 0 &&
           std::ranges::count(arguments, "--time-limit") == 0;
  }

  void must_succeed(const std::vector<std::string>& arguments, const std::string& because) {
    const Ran ran = tool(arguments);
    if (ran.code != 0) fail(because + ", yet: " + ran.err);
  }

  /// Calls `use`; false when it refuses its input as it should.
  template <class Use>
  bool takes(const std::string& doing, Use use) {
    one_.doing(doing);
    try {
      use();
      return true;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::internal || error.kind() == ErrorKind::run)
        fail(std::string("internal: ") + error.what());
      if (error.message().empty()) fail("refused without words");
      return false;
    }
  }

  /// The reader accepts the text: then what it writes must be read as the same value.
  /// `document`: whose schema takes what the reader takes; empty: there is none.
  template <class Parse>
  bool reads_back(const std::string& text, Parse parse, std::string_view document = {}) {
    return takes("read and write", [&] {
      const auto value = parse(text);
      if (!document.empty()) {
        one_.doing("validate by the schema");
        const std::string wrong = test::schema_error(document, parse_json(text));
        if (!wrong.empty()) fail("the schema refuses what is read: " + wrong);
      }
      const std::string written = dump_json(to_json(value));
      one_.doing("read what was written");
      if (!(parse(written) == value)) fail("what was written is read as another value");
      if (dump_json(to_json(parse(written))) != written) fail("what was read is written as another text");
    });
  }

  /// As text: structure changed first, then, now and then, bytes.
  std::string changed(Json json, bool plan = false) {
    const std::size_t changes = 1 + (random_.one_in(2) ? 0 : random_.below(4));
    for (std::size_t i = 0; i < changes; ++i) {
      if (plan && random_.one_in(2)) {
        mutate_plan_programs(random_, json);
      } else if (random_.one_in(3)) {
        mutate_json_gently(random_, json);
      } else {
        mutate_json(random_, json);
      }
    }
    if (random_.one_in(2)) rehash(json);
    std::string text;
    try {
      text = random_.one_in(2) ? dump_json(json) : json.dump();
    } catch (const std::exception&) {
      text = json.dump(-1, ' ', false, Json::error_handler_t::ignore);
    }
    if (random_.one_in(10)) mutate_bytes(random_, text);
    if (random_.one_in(20)) mutate_cells(random_, text, ",:{}[]");
    return text;
  }

  /// A profile of a changed model is refused for its hash alone, unless that follows.
  static void rehash(Json& json) {
    if (!json.is_object() || !json.contains("model_hash") || !json.contains("model")) return;
    try {
      json["model_hash"] = model_hash(model_from_json(json["model"]));
    } catch (const Error&) {
    }
  }

  void model() {
    const std::string text = changed(random_.pick(corpus_.models));
    write("model.json", text);
    accepted_ = reads_back(text, parse_model, "model");
    if (!accepted_) return;
    takes("check a plan of the model", [&] {
      plan::Plan plan;
      plan.model = parse_model(text);
      plan.schedule.name = "gpipe";
      plan::Stage& stage = plan.stages.emplace_back();
      for (const Layer& layer : plan.model.layers) stage.layers.push_back(layer.name);
      stage.workers = {WorkerId{0}};
      plan.devices = flat_cluster(1, DeviceKind::cpu, BytesPerSecond(1e9), Seconds(0), Bytes(0)).devices;
      plan.workers.push_back(
          {WorkerId{0}, plan.devices.front().id, 0, {plan::parse_program("F0.0 B0.0 U0"), {}}});
      plan::check_plan(plan);
      if (!(plan::parse_plan(dump_json(to_json(plan))) == plan))
        fail("the plan of the model is read as another one");
    });
  }

  /// Hugging Face's: what is built is a model that can be written and read.
  void config() {
    const std::string text = changed(random_.pick(corpus_.configs));
    write("config.json", text);
    accepted_ = takes("build", [&] {
      const Json json = parse_json(text);
      if (!model::is_hugging_face_config(json)) throw Error(ErrorKind::data, "no config.json");
      const ModelGraph graph = model::build_hugging_face(json, "sequence=8");
      if (graph.layers.size() < 2000 && !(parse_model(dump_json(to_json(graph))) == graph))
        fail("what was built is read as another model");
    });
  }

  std::vector<std::string> with_options(std::vector<std::string> command, std::size_t most) {
    for (std::size_t count = random_.below(most + 1); count > 0; --count) {
      const std::vector<std::string>& option = random_.pick(corpus_.options);
      if (std::ranges::find(command, option.front()) == command.end())
        command.insert(command.end(), option.begin(), option.end());
    }
    command.insert(command.end(), {"--threads", "1"});
    return command;
  }

  /// Plans; the planner's own plan must pass every check.
  void make(const std::vector<std::string>& machine) {
    std::vector<std::string> command{"make", "profile.json", "--mini-batch", "8", "-o", "plan.json"};
    command.insert(command.end(), machine.begin(), machine.end());
    if (tool(with_options(command, 3)).code != 0) return;
    must_succeed({"check", "plan.json"}, "the planner made this plan");
    must_succeed({"show", "plan.json", "--timeline"}, "the planner made this plan");
  }

  void profile() {
    const std::string text = changed(random_.pick(corpus_.profiles));
    write("profile.json", text);
    accepted_ = reads_back(text, parse_profile, "profile");
    if (!accepted_ || random_.one_in(3)) {
      tool({"make", "profile.json", "--devices", "2", "--bandwidth", "1GB/s", "--mini-batch", "4", "--threads",
            "1"});
      return;
    }
    reports(text);
    write("cluster.json", random_.pick(corpus_.cluster_texts));
    switch (random_.below(6)) {
      case 0:
        return (void)tool(with_options(
            {"compare", "profile.json", "--devices", "2", "--bandwidth", "1GB/s", "--mini-batch", "4"}, 2));
      case 1:
        return (void)tool({"sweep", "profile.json", "--cluster", "cluster.json", "--mini-batch", "4",
                           "--micro-batches", "1,2", "--schedules", "gpipe,1f1b", "--threads", "1", "--csv",
                           "sweep.csv"});
      case 2: return peer();
      default: return make({"--cluster", "cluster.json"});
    }
  }

  void peer() {
    static const std::vector<std::string> kModels{"pipedream-code", "pipedream-paper", "dnn-partitioning",
                                                  "piper", "dapple"};
    const std::string name = random_.pick(kModels);
    std::vector<std::string> command{"make", "profile.json", "--cost-model", name, "--devices", "4"};
    if (name != "dapple") command.insert(command.end(), {"--bandwidth", "1e9"});
    if (name == "dapple") command.insert(command.end(), {"--mini-batch", "16"});
    if (random_.one_in(3)) command.insert(command.end(), {"--strategy", "auto"});
    if (random_.one_in(4)) command.push_back("--force-units");
    tool(command);
  }

  void reports(const std::string& text) {
    takes("profile reports", [&] {
      const Profile profile = parse_profile(text);
      profile::document_findings(profile);
      profile::layer_svg(profile, {});
      const Profile other = parse_profile(random_.pick(corpus_.profile_texts));
      dump_json(profile::to_json(profile::diff_profiles(profile, other)));
      const Profile merged = profile::merge_profiles(profile, other, profile::Overlap::first);
      if (!(parse_profile(dump_json(to_json(merged))) == merged))
        fail("a merged profile is read as another one");
    });
  }

  void cluster() {
    const std::string text = changed(random_.pick(corpus_.clusters));
    write("cluster.json", text);
    accepted_ = reads_back(text, parse_cluster, "cluster");
    write("profile.json", random_.pick(corpus_.profile_texts));
    make({"--cluster", "cluster.json"});
  }

  void plan() {
    const std::string text = changed(random_.pick(corpus_.plans), true);
    write("plan.json", text);
    const bool read = reads_back(text, plan::parse_plan, "plan");
    const Ran checked = tool({"check", "plan.json"});
    accepted_ = checked.code == 0;
    if (accepted_ && !read) fail("check accepts what cannot be read");
    const std::vector<std::string> show{"show", "plan.json", "--programs"};
    accepted_ ? must_succeed(show, "check accepts the plan") : (void)tool(show);
    switch (random_.below(accepted_ ? 4 : 8)) {
      case 0: tool({"show", "plan.json", "--timeline", "--width", "60"}); break;
      case 1: tool({"show", "plan.json", "--svg", "plan.svg", "--trace", "plan.trace"}); break;
      case 2: {
        const Ran simulated = tool({"simulate", "plan.json", "--updates", "2"});
        if (!accepted_ && simulated.code == 0) fail("simulate takes what check refuses");
        break;
      }
      case 3:
        write("profile.json", random_.pick(corpus_.profile_texts));
        tool({"export", "plan.json", "--profile", "profile.json", "-o", "graph.txt"});
        break;
    }
  }

  void csv() {
    std::string text = random_.pick(corpus_.csv);
    const std::size_t changes = 1 + random_.below(3);
    for (std::size_t i = 0; i < changes; ++i) mutate_cells(random_, text, ",\n");
    if (random_.one_in(10)) mutate_bytes(random_, text);
    write("programs.csv", text);
    accepted_ = takes("read and write", [&] {
      const std::string written = plan::to_csv(plan::parse_csv(text));
      if (plan::to_csv(plan::parse_csv(written)) != written) fail("what was written is read as other programs");
    });
    tool({"simulate", "--csv", "programs.csv", "--queues", random_.one_in(2) ? "0" : "2"});
    if (random_.one_in(2)) return;
    write("profile.json", random_.pick(corpus_.profile_texts));
    make({"--devices", "2", "--bandwidth", "1GB/s", "--programs", "programs.csv"});
  }

  Profile import(const std::string& text) const {
    if (kind_ == kPipeDream) return plan::import_pipedream(text, "foreign", 4);
    if (kind_ == kPiper) return plan::import_piper(text, "foreign", 4, plan::TimeUnit::ms);
    return plan::import_dnn_partitioning(text, "foreign", 4);
  }

  void foreign() {
    std::string text;
    if (kind_ == kPipeDream) {
      text = random_.pick(corpus_.pipedream);
      const std::size_t changes = 1 + random_.below(3);
      for (std::size_t i = 0; i < changes; ++i)
        mutate_cells(random_, text, random_.one_in(2) ? "\n" : "\t,=;\n");
      if (random_.one_in(4)) mutate_bytes(random_, text);
    } else {
      text = changed(random_.pick(kind_ == kPiper ? corpus_.piper : corpus_.dnn));
    }
    write("foreign", text);
    accepted_ = takes("import", [&] {
      const Profile profile = import(text);
      const std::string written = dump_json(to_json(profile));
      if (!(parse_profile(written) == profile)) fail("an imported profile is read as another one");
      write("profile.json", written);
    });
    if (accepted_)
      random_.one_in(2) ? peer() : make({"--devices", "2", "--bandwidth", "1GB/s", "--micro-batch-size", "4"});
  }

  void command() {
    write("profile.json", random_.pick(corpus_.profile_texts));
    write("cluster.json", random_.pick(corpus_.cluster_texts));
    write("plan.json", random_.pick(corpus_.plan_texts));
    write("programs.csv", random_.pick(corpus_.csv));
    std::vector<std::string> line = random_.pick(corpus_.commands);
    if (line.front() == "make" || line.front() == "compare") line = with_options(line, 2);
    const std::size_t changes = 1 + random_.below(2);
    for (std::size_t i = 0; i < changes; ++i) change_word(line);
    accepted_ = tool(line).code == 0;
  }

  void change_word(std::vector<std::string>& line) {
    if (line.size() < 2) return;
    const std::size_t at = 1 + random_.below(line.size() - 1);
    switch (random_.below(8)) {
      case 0: line.erase(line.begin() + static_cast<std::ptrdiff_t>(at)); break;
      case 1:
        line.insert(line.begin() + static_cast<std::ptrdiff_t>(at), line[1 + random_.below(line.size() - 1)]);
        break;
      case 2: std::swap(line[at], line[1 + random_.below(line.size() - 1)]); break;
      default: mutate_cells(random_, line[at], ",@=-");
    }
    std::erase_if(line,
                  [](const std::string& word) { return word.starts_with('/') || word.starts_with(".."); });
  }

  void runtime() {
    accepted_ = takes("a document of the runtime", [&] {
      if (const std::string wrong = check_runtime_document(random_, one_.folder()); !wrong.empty()) fail(wrong);
    });
  }

  const Corpus& corpus_;
  Case& one_;
  Random random_;
  Kind kind_ = kModel;
  bool accepted_ = false;
  std::string finding_;
};

}  // namespace
}  // namespace pp::fuzz

int main(int argc, char** argv) {
  using namespace pp::fuzz;
  const Corpus corpus;
  Campaign campaign;
  campaign.name = "fuzz_documents";
  for (const char* name : kNames) {
    campaign.categories.push_back(std::string(name) + ", accepted");
    campaign.categories.push_back(std::string(name) + ", refused");
  }
  campaign.run = [&](Case& one) { return Documents(corpus, one).run(); };
  return run_campaign(campaign, argc, argv);
}
