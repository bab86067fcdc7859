#include "libprofile/core/byte_order_mark.h"

#include "libprofile/core/error.h"

namespace pp {

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kUtf8 = "\xEF\xBB\xBF";
  if (text.starts_with(kUtf8)) text.remove_prefix(kUtf8.size());
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
    throw Error(ErrorKind::data, "is text in UTF-16; save it as UTF-8");
  return text;
}

}  // namespace pp
