// SIGINT, SIGTERM, SIGHUP and SIGUSR1 as a flag that the tools poll: the current step is finished and results
// are written. SIGUSR1 is what launchers pass on to their ranks without ending them a second later.
#pragma once

namespace pp::cli {

/// Installs the handlers. The same signal a tenth of a second later, or another one a second later, ends the
/// process at once with 130. What comes sooner is the same wish: SIGINT of a terminal and the SIGTERM with
/// which a launcher follows it, the two signals of timeout(1).
void catch_interrupts();
bool interrupted();
/// The first of them; 0: none has come.
int interruption();

}  // namespace pp::cli
