#include "librun/drive/agreement.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/file.h"
#include "libprofile/core/hash.h"
#include "libprofile/device/machine.h"
#include "libprofile/model/errors.h"
#include "librun/checkpoint/checkpoint_folder.h"
#include "librun/setup/make_setup.h"
#include "librun/setup/start.h"
#include "librun/transport/mailbox.h"
#include "librun/transport/packed.h"

namespace pp::run {

namespace {

// What must be the same everywhere: `value` is compared, `shown` stands in the message.
struct Fact {
  std::string name, value, shown;
};

// What a rank knows, or why it cannot go on.
struct View {
  std::optional<Error> refused = {};
  std::vector<Fact> facts = {};
  std::string host = {};
  std::vector<int> cores = {};
};

std::string pack(const View& view) {
  Packer to;
  to.add(view.refused.has_value());
  if (view.refused) to.add(view.refused->kind()).add(std::string(view.refused->what()));
  to.add(view.facts.size());
  for (const Fact& fact : view.facts) to.add(fact.name).add(fact.value).add(fact.shown);
  to.add(view.host).add(view.cores);
  return to.take();
}

View unpack_agreement(const std::string& bytes) {
  Unpacker from(bytes);
  View view;
  if (from.take<bool>()) {
    const auto kind = from.take<ErrorKind>();
    view.refused.emplace(kind, from.take<std::string>());
  }
  view.facts.resize(from.take<std::size_t>());
  for (Fact& fact : view.facts) {
    from.read(fact.name);
    from.read(fact.value);
    from.read(fact.shown);
  }
  from.read(view.host);
  from.read(view.cores);
  return view;
}

[[noreturn]] void refuse(int rank, ErrorKind kind, const std::string& text) {
  if (rank == 0) throw NotBegun(kind, text);
  throw SaidElsewhere(kind, text, /*begun=*/false);
}

struct Difference {
  std::string name, first, there;
};

// The first fact of rank 0 that another rank has otherwise or not at all, else the first that it has alone.
std::optional<Difference> difference(const std::vector<Fact>& first, const std::vector<Fact>& there) {
  const auto find = [](const std::vector<Fact>& facts, const std::string& name) -> const Fact* {
    const auto found = std::ranges::find(facts, name, &Fact::name);
    return found == facts.end() ? nullptr : &*found;
  };
  constexpr auto kAbsent = "not given";
  for (const Fact& fact : first) {
    const Fact* const other = find(there, fact.name);
    if (other && other->value == fact.value) continue;
    return Difference{fact.name, fact.shown, other ? other->shown : kAbsent};
  }
  for (const Fact& fact : there) {
    if (!find(first, fact.name)) return Difference{fact.name, kAbsent, fact.shown};
  }
  return std::nullopt;
}

// All views, by rank. What rank 0 says is the first reason; one that others share is said without a rank.
std::vector<View> compare(Mailbox& mailbox, const View& mine) {
  std::vector<View> views;
  for (const std::string& bytes : gather_everywhere(mailbox, pack(mine)))
    views.push_back(unpack_agreement(bytes));
  const auto name = [&](std::size_t rank) {
    return "rank " + std::to_string(rank) + (views[rank].host.empty() ? "" : " on " + views[rank].host);
  };
  for (std::size_t r = 0; r < views.size(); ++r) {
    if (!views[r].refused) continue;
    const std::string where = r == 0 ? "" : name(r) + ": ";
    refuse(mailbox.rank(), views[r].refused->kind(), where + views[r].refused->what());
  }
  for (std::size_t r = 1; r < views.size(); ++r) {
    const std::optional<Difference> found = difference(views[0].facts, views[r].facts);
    if (!found) continue;
    refuse(mailbox.rank(), ErrorKind::usage,
           name(r) + ": " + found->name + " is " + found->there + ", on rank 0 " + found->first +
               "; start all ranks with the same pp-run, plan, data, weights and options");
  }
  return views;
}

std::optional<Error> error_of(const std::function<void()>& body) {
  try {
    try {
      body();
    } catch (...) {
      model::detail::rethrow_as_error();
    }
  } catch (const LostRank&) {
    throw;  // this rank speaks
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(ErrorKind::internal, error.what());
  }
  return std::nullopt;
}

constexpr std::size_t kShownHash = 15;  // `sha256:` and eight digits

std::string hash_of_files(const std::vector<std::filesystem::path>& files) {
  ContentHash hash;
  for (const std::filesystem::path& file : files)
    read_file(file, [&](std::string_view piece) { hash.update(piece); });
  return hash.text();
}

// The number of samples, and what the first, the last and some evenly between hold. More would be a load on the
// file server, with every rank reading.
std::string fingerprint(const SampleTable& table) {
  constexpr std::int64_t kMost = 64;
  std::vector<std::int64_t> some;
  const std::int64_t count = std::min(table.samples, kMost), steps = std::max<std::int64_t>(1, count - 1);
  for (std::int64_t i = 0; i < count; ++i)
    some.push_back(table.first + (table.samples - 1) / steps * i + (table.samples - 1) % steps * i / steps);
  ContentHash hash;
  std::string rows;
  for (const auto* const columns : {&table.inputs, &table.targets}) {
    for (const Records& records : *columns) {
      if (records.parts.empty()) continue;
      rows.resize(some.size() * records.sample_bytes());
      read_records(records, some, rows);
      hash.update(rows);
    }
  }
  return std::to_string(table.samples) + " samples " + hash.text().substr(0, kShownHash);
}

std::string table_of(const RateSchedule& rates) {
  Packer table;
  for (const auto& [step, rate] : rates.table) table.add(step).add(rate);
  const std::string bytes = table.take();
  return bytes.empty() ? "none" : content_hash(bytes).substr(0, kShownHash);
}

// The files that the weights come from, with the hash of what they hold. Their folders may differ.
Fact beginning(const Start& start) {
  constexpr auto kName = "the state that the training begins with";
  if (start.weights.empty()) return {kName, "drawn", "drawn from the seed"};
  const bool resumed = !start.resumed.empty();  // whose manifest has the hashes of the files, which are checked
  const std::string hash = hash_of_files(resumed ? std::vector{start.resumed / kManifest} : start.weights);
  const std::filesystem::path& from = resumed ? start.resumed : start.weights.front();
  return {kName, hash, from.string() + " (" + hash.substr(0, kShownHash) + ")"};
}

void add_facts(View& view, const plan::Plan& plan, const RunOptions& options, const Setup& setup) {
  const auto fact = [&](std::string name, const std::string& value) {
    view.facts.push_back({std::move(name), value, value});
  };
  for (const auto& [name, setting] : settings_of(plan, options, setup.length)) {
    if (name != "data") fact("option " + name, setting_text(setting));
  }
  fact("the seed", std::to_string(options.seed));
  fact("the training data", setup.files ? fingerprint(setup.files->training) : "synthetic");
  fact("the test data", setup.files && setup.files->test ? fingerprint(*setup.files->test) : "none");
  fact("the number of test samples", std::to_string(setup.test_samples));
  fact("the table of learning rates", table_of(setup.rates));
  view.facts.push_back(beginning(setup.start));
  fact("the first step", std::to_string(setup.start.position.step));
  fact("the interval of checkpoints", std::to_string(setup.snapshot_every));
  fact("whether weights or checkpoints are written",
       options.save_weights.empty() && options.checkpoint.empty() ? "no" : "yes");
}

}  // namespace

Placement meet(Mailbox& mailbox, const plan::Plan& plan) {
  const std::string hash = plan::plan_hash(plan);
  View mine{.facts = {{"the version", PP_VERSION, PP_VERSION}, {"the plan", hash, hash}},
            .host = mailbox.peers().host(),
            .cores = profile::usable_cores()};
  Placement placement;
  mine.refused = error_of([&] { placement = place_workers(plan, mailbox.rank(), mailbox.size()); });
  const std::vector<View> views = compare(mailbox, mine);
  std::vector<std::string> hosts;
  for (std::size_t r = 0; r < views.size(); ++r) {
    placement.on_host[r] = views[r].host == mine.host;
    placement.beside[r] = placement.on_host[r] && views[r].cores == mine.cores;
    const auto known = std::ranges::find(hosts, views[r].host);
    placement.host_of.push_back(static_cast<int>(known - hosts.begin()));
    if (known == hosts.end()) hosts.push_back(views[r].host);
  }
  return placement;
}

void refuse_to_meet(Mailbox& mailbox, const Error& why) {
  compare(mailbox, {.refused = why, .host = mailbox.peers().host()});
  throw why;
}

std::optional<FoundCheckpoint> find_together(Mailbox& mailbox, const RunOptions& options) {
  constexpr Seconds kSeen(10);
  Packer mine;  // nothing where the folder is refused, which find_start() says
  error_of([&] {
    if (!resumes(options)) return;
    for (const Resumable& one : resumables(options)) mine.add(one.step).add(one.name);
  });
  std::vector<Resumable> all;
  for (const std::string& list : gather_everywhere(mailbox, mine.take())) {
    for (Unpacker from(list); !from.empty();) {
      Resumable& one = all.emplace_back();
      from.read(one.step);
      from.read(one.name);
    }
  }
  if (all.empty()) return std::nullopt;
  const auto agree = [&](const std::string& why_not) {
    const std::vector<std::string> reasons = gather_everywhere(mailbox, why_not);
    const auto first = std::ranges::find_if(reasons, [](const std::string& why) { return !why.empty(); });
    return first == reasons.end() ? std::string() : *first;
  };
  return find_resumed(options, std::move(all),
                      {mailbox.rank(), mailbox.size(), agree, /*keep=*/true, /*patience=*/kSeen});
}

Setup agree(Mailbox& mailbox, const plan::Plan& plan, const RunOptions& options,
            const std::function<Setup()>& make) {
  View mine{.host = mailbox.peers().host()};
  Setup setup;
  mine.refused = error_of([&] {
    setup = make();
    add_facts(mine, plan, options, setup);
  });
  compare(mailbox, mine);
  return setup;
}

Setup set_up(Mailbox& mailbox, const plan::Plan& plan, const RunOptions& options,
             const std::function<void(const Setup&)>& also) {
  const Placement placement = meet(mailbox, plan);
  Setup setup = agree(mailbox, plan, options, [&] {
    Setup mine = make_setup(plan, options, placement, find_together(mailbox, options));
    also(mine);
    return mine;
  });
  setup.peers = &mailbox.peers();
  const RankClock clock = compare_clocks(mailbox);
  if (mailbox.rank() != 0 && !(placement.on_host[0] && clock.may_be_same())) setup.clock = clock;
  return setup;
}

void begin(Mailbox& mailbox, const std::function<void()>& work) {
  const std::optional<Error> error = error_of(work);
  if (!error) return;
  if (mailbox.rank() != 0) mailbox.post_failure(error->what());
  mailbox.flush();
  throw *error;
}

}  // namespace pp::run
