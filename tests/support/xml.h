// Whether a picture is XML at all.
#pragma once

#include <string>
#include <vector>

namespace pp::test {

/// What is not well-formed: the first tag that does not close what is open; empty if all is well. Enough XML
/// for what is written here: no comments, no `>` in attributes.
inline std::string xml_error(const std::string& text) {
  std::vector<std::string> open;
  for (std::size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at + 1)) {
    const std::size_t end = text.find('>', at);
    if (end == std::string::npos || text.find('<', at + 1) < end) return text.substr(at, 40);
    const std::string tag = text.substr(at + 1, end - at - 1);
    if (tag.ends_with('/')) continue;
    if (!tag.starts_with('/')) {
      open.push_back(tag.substr(0, tag.find(' ')));
    } else {
      if (open.empty() || open.back() != tag.substr(1)) return tag;
      open.pop_back();
    }
  }
  return open.empty() ? "" : open.back();
}

}  // namespace pp::test
