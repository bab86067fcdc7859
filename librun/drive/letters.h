// What the ranks of a run tell each other beside tensors, as letters: a kind, then its content.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "librun/drive/saver.h"
#include "librun/transport/packed.h"
#include "librun/worker/progress.h"
#include "librun/worker/record.h"

namespace pp::run {

enum class LetterKind : char {
  // From rank 0.
  start,  ///< when the run began, by rank 0's clock
  order,
  end,  ///< everything has come: leave
  // To rank 0.
  entry,      ///< of the ledger
  share,      ///< of a snapshot
  records,    ///< of all workers of the rank
  failed,     ///< why
  interrupt,  ///< somebody wants the run to end
  // Both ways.
  pulse
};

/// Times travel as seconds since the start of the run.
using RunTime = Coordinator::Clock::time_point;

std::string pack(const Order& order);
std::string pack(const LedgerEntry& entry, RunTime start);
std::string pack(Share share);
std::string pack(const std::vector<std::pair<WorkerId, WorkerRecord*>>& records);

/// A sign of life: how much has been done so far, and the words for each worker.
struct Pulse {
  Coordinator::Elsewhere done;
  std::vector<std::pair<WorkerId, std::string>> states;
};
std::string pack(const Pulse& pulse);

/// What follows the kind.
Order unpack_order(Unpacker& from);
LedgerEntry unpack_entry(Unpacker& from, RunTime start);
Share unpack_share(Unpacker& from);
std::vector<std::pair<WorkerId, WorkerRecord>> unpack_records(Unpacker& from);
Pulse unpack_pulse(Unpacker& from);

}  // namespace pp::run
