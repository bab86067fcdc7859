// Whether the processes of a run are of one mind, before work starts. All ranks call the same functions; what
// one of them cannot accept is thrown by all, as itself on rank 0 and as SaidElsewhere on the others.
#pragma once

#include <functional>
#include <optional>

#include "librun/checkpoint/checkpoint_folder.h"
#include "librun/transport/mailbox.h"
#include "librun/transport/placement.h"
#include "librun/worker/job.h"

namespace pp::run {

/// Who is where. Throws also where ranks have other plans or versions.
Placement meet(Mailbox& mailbox, const plan::Plan& plan);
/// In its place, for a rank that has no plan.
[[noreturn]] void refuse_to_meet(Mailbox& mailbox, const Error& why);

/// The checkpoint that the training goes on from: the newest that any rank sees and all can open; each reads
/// its own parts. Nothing where there is none. Throws pp::Error (data) on all ranks alike.
std::optional<FoundCheckpoint> find_together(Mailbox& mailbox, const RunOptions& options);

/// What `make` returns, if it throws nowhere and options, data and the beginning of the training are the same
/// everywhere.
Setup agree(Mailbox& mailbox, const plan::Plan& plan, const RunOptions& options,
            const std::function<Setup()>& make);

/// All of that: who is where, one setup, and how the clocks go. `also` is called with the setup before the
/// ranks agree on it.
Setup set_up(
    Mailbox& mailbox, const plan::Plan& plan, const RunOptions& options,
    const std::function<void(const Setup&)>& also = [](const Setup&) {});

/// What follows: where it fails the other ranks hear of it, while they do the same or afterwards.
void begin(Mailbox& mailbox, const std::function<void()>& work);

/// `body`, whose errors rank 0 tells; the others' become SaidElsewhere.
template <class Body>
auto as_rank(int rank, Body&& body) {
  try {
    return body();
  } catch (const LostRank&) {
    throw;
  } catch (const Error& error) {
    if (rank == 0) throw;
    throw SaidElsewhere(error.kind(), error.what());
  }
}

}  // namespace pp::run
