// The page without its data: page/frame.html with the style and the scripts beside it, which are put into the
// library when it is built.
#pragma once

#include <string_view>

namespace pp::plan {

/// With the marks @TITLE@, @STYLE@, @SECTIONS@ and @DATA@, in this order.
extern const std::string_view kExplorerTemplate;

}  // namespace pp::plan
