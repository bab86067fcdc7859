#include "apps/cli/output.h"

#include <iostream>

namespace pp::cli {

Output::Output(const std::string& path) : wanted_(!path.empty()) {
  if (wanted_ && path != "-") file_.emplace(path);
}

void Output::write(std::string_view bytes) {
  if (file_) {
    file_->write(bytes);
    file_->commit();
  } else if (wanted_) {
    std::cout << bytes;
  }
}

}  // namespace pp::cli
