#include "librun/setup/agreement.h"

#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/hash.h"
#include "libprofile/device/cores.h"
#include "libprofile/model/errors.h"
#include "librun/run.h"
#include "librun/setup/start.h"
#include "librun/transport/packed.h"

namespace pp::run {

namespace {

// A rank's view: what must be the same everywhere, by name, or why it cannot go on.
struct View {
  std::optional<Error> refused = {};
  std::vector<std::pair<std::string, std::string>> facts = {};
  std::string host = {};
  std::vector<int> cores = {};
};

std::string pack(const View& view) {
  Packer to;
  to.add(view.refused.has_value());
  if (view.refused) to.add(view.refused->kind()).add(std::string(view.refused->what()));
  to.add(view.facts.size());
  for (const auto& [name, fact] : view.facts) to.add(name).add(fact);
  to.add(view.host).add(view.cores);
  return to.take();
}

View unpack(const std::string& bytes) {
  Unpacker from(bytes);
  View view;
  if (from.take<bool>()) {
    const auto kind = from.take<ErrorKind>();
    view.refused.emplace(kind, from.take<std::string>());
  }
  view.facts.resize(from.take<std::size_t>());
  for (auto& [name, fact] : view.facts) {
    from.read(name);
    from.read(fact);
  }
  from.read(view.host);
  from.read(view.cores);
  return view;
}

[[noreturn]] void refuse(int rank, ErrorKind kind, const std::string& text) {
  if (rank == 0) throw NotBegun(kind, text);
  throw SaidElsewhere(kind, text, /*begun=*/false);
}

// All views, by rank. What rank 0 says is the first reason; one that others share is said without a rank.
std::vector<View> compare(Mailbox& mailbox, const View& mine) {
  std::vector<View> views;
  for (const std::string& bytes : gather_everywhere(mailbox, pack(mine))) views.push_back(unpack(bytes));
  const auto name = [&](std::size_t rank) {
    return "rank " + std::to_string(rank) + (views[rank].host.empty() ? "" : " on " + views[rank].host);
  };
  for (std::size_t r = 0; r < views.size(); ++r) {
    if (!views[r].refused) continue;
    const std::string where = r == 0 ? "" : name(r) + ": ";
    refuse(mailbox.rank(), views[r].refused->kind(), where + views[r].refused->what());
  }
  for (std::size_t r = 1; r < views.size(); ++r) {
    for (std::size_t i = 0; i < views[0].facts.size(); ++i) {
      const auto& [what, first] = views[0].facts[i];
      const std::string& other = views[r].facts[i].second;
      if (first == other) continue;
      refuse(mailbox.rank(), ErrorKind::usage,
             name(r) + ": " + what + " is " + other + ", on rank 0 " + first +
                 "; start all ranks with the same pp-run, plan, data and options");
    }
  }
  return views;
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
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

// Sizes, and what the first and the last sample hold.
std::string fingerprint(const SampleTable& table) {
  std::string bytes = std::to_string(table.samples);
  if (table.samples == 0) return bytes;
  const std::vector<std::int64_t> ends{table.first, table.first + table.samples - 1};
  for (const auto* const columns : {&table.inputs, &table.targets}) {
    for (const Records& records : *columns) {
      if (records.parts.empty()) continue;
      std::string rows(2 * records.sample_bytes(), '\0');
      read_records(records, ends, rows);
      bytes += rows;
    }
  }
  return std::to_string(table.samples) + " samples " + content_hash(bytes).substr(0, 15);
}

void add_facts(View& view, const plan::Plan& plan, const RunOptions& options, const Setup& setup) {
  const auto fact = [&](std::string name, std::string value) {
    view.facts.emplace_back(std::move(name), std::move(value));
  };
  for (const auto& [name, setting] : settings_of(plan, options, setup.length)) {
    if (name != "data") fact("option " + name, setting_text(setting));
  }
  fact("the seed", std::to_string(options.seed));
  fact("the training data", setup.files ? fingerprint(setup.files->training) : "synthetic");
  fact("the test data", setup.files && setup.files->test ? fingerprint(*setup.files->test) : "none");
  fact("the number of test samples", std::to_string(setup.test_samples));
  fact("the first step", std::to_string(setup.start.position.step));
  fact("the interval of checkpoints", std::to_string(setup.snapshot_every));
  fact("whether weights or checkpoints are written",
       options.save_weights.empty() && options.checkpoint.empty() ? "no" : "yes");
}

}  // namespace

Placement meet(Mailbox& mailbox, const plan::Plan& plan) {
  View mine{.facts = {{"the version", PP_VERSION}, {"the plan", plan::plan_hash(plan)}},
            .host = host_name(),
            .cores = profile::usable_cores()};
  Placement placement;
  mine.refused = error_of([&] { placement = place_workers(plan, mailbox.rank(), mailbox.size()); });
  const std::vector<View> views = compare(mailbox, mine);
  for (std::size_t r = 0; r < views.size(); ++r) {
    placement.on_host[r] = views[r].host == mine.host;
    placement.beside[r] = placement.on_host[r] && views[r].cores == mine.cores;
  }
  return placement;
}

void refuse_to_meet(Mailbox& mailbox, const Error& why) {
  compare(mailbox, {.refused = why, .host = host_name()});
  throw why;
}

Setup agree(Mailbox& mailbox, const plan::Plan& plan, const RunOptions& options,
            const std::function<Setup()>& make) {
  View mine{.host = host_name()};
  Setup setup;
  mine.refused = error_of([&] {
    setup = make();
    add_facts(mine, plan, options, setup);
  });
  compare(mailbox, mine);
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
