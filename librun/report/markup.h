// Pieces of the report page. Texts are escaped where they come from documents: `inner` is markup, as it is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pp::run {

/// `<p class="css">inner</p>`
std::string element(std::string_view tag, std::string_view css, std::string_view inner);

/// Four significant digits, no exponent where people would write none.
std::string number_text(double value);
/// `12.5 %`
std::string share_text(double share);

/// Cells are markup; the first `texts` columns are left-aligned, the others numbers.
std::string table_html(const std::vector<std::string>& titles,
                       const std::vector<std::vector<std::string>>& rows, std::size_t texts);

/// A bar that is filled from the left.
std::string bar_html(double share);
/// A bar that goes from its middle to the left below 1 and to the right above it; half and double fill it.
std::string ratio_html(double ratio);

}  // namespace pp::run
