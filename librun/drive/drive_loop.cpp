#include "librun/drive/drive_loop.h"

namespace pp::run {

void DriveLoop::run() {
  permit();
  while (!over()) {
    take();
    permit();
  }
}

bool DriveLoop::poll() {
  if (ended_early_ || !interrupted_()) return ended_early_;
  ended_early_ = true;
  cut_short();
  return true;
}

}  // namespace pp::run
