// What the ranks of a run tell each other beside tensors, as control messages: a kind, then its content.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "librun/control/checkpointer.h"
#include "librun/control/commands.h"
#include "librun/control/ledger.h"
#include "librun/report/record.h"
#include "librun/transport/mailbox.h"
#include "librun/transport/packed.h"
#include "librun/transport/rank_clock.h"

namespace pp::run {

enum class ControlKind : char {
  // From rank 0.
  start,  ///< when the run began, by rank 0's clock
  order,
  time,  ///< the answer to `ask`: its time, and rank 0's
  end,   ///< everything has come: leave
  // To rank 0.
  entry,      ///< of the ledger: a rank's losses and updates of a step, or its part of an evaluation
  share,      ///< of a snapshot
  ask,        ///< what rank 0's clock shows, with the asker's time
  records,    ///< of all workers of the rank, and how its clock goes
  interrupt,  ///< somebody wants the run to end
  // Both ways.
  pulse,
  failed = kFailed  ///< why
};

/// Times travel as seconds since the start of the run, by rank 0's clock.
using RunTime = Coordinator::Clock::time_point;

std::string pack(const Order& order);
std::string pack(const LedgerEntry& entry, RunTime start);
std::string pack(CheckpointShare share);
using RecordsHere = std::vector<std::pair<WorkerId, WorkerRecord*>>;
std::string pack(const RecordsHere& records, const std::optional<RankClock::Relation>& clock);

/// A sign of life: how much has been done so far, and the words for each worker.
struct Pulse {
  Coordinator::Elsewhere done;
  std::vector<std::pair<WorkerId, std::string>> states;
};
std::string pack(const Pulse& pulse);

/// What follows the kind.
Order unpack_order(Unpacker& from);
LedgerEntry unpack_entry(Unpacker& from, RunTime start);
CheckpointShare unpack_share(Unpacker& from);
struct RankRecords {
  std::vector<std::pair<WorkerId, WorkerRecord>> workers;
  std::optional<RankClock::Relation> clock;  ///< none: it is rank 0's
};
RankRecords unpack_records(Unpacker& from);
Pulse unpack_pulse(Unpacker& from);

}  // namespace pp::run
