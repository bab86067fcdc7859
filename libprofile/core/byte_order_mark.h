// The mark that some editors and spreadsheets put in front of a text.
#pragma once

#include <string_view>

namespace pp {

/// `text` behind the byte order mark of UTF-8. Throws pp::Error (data) for one of UTF-16.
std::string_view without_byte_order_mark(std::string_view text);

}  // namespace pp
