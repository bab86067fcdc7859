// Reports as one page for a browser: the explorer of libplan, with what was measured beside what was
// promised, and the curves, operations, workers and settings of the runs. It loads nothing from anywhere;
// texts from documents are escaped (`inner` is markup, as it is).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "librun/report/report.h"

namespace pp::run {

/// A report and the file that it comes from; it must outlive the call.
struct NamedReport {
  std::string name;
  const RunReport* report = nullptr;
};

/// Reports as report_from_json() or run() gives them, at least one; several share the axes of time, memory and
/// steps. A few MB at most, whatever the length of the runs. O(operations of the plans + steps).
std::string report_html(std::span<const NamedReport> reports);

struct PageTimeline {
  std::string name;  ///< `predicted`, `measured, steps 3 to 4`
  Drawn drawn;
  Seconds step{};  ///< in steady state
  double bubble = 0;
};

/// The predicted one first, where the plan carries costs; none where no operation was written down. A step
/// whose mini-batch was a partial one is named.
std::vector<PageTimeline> page_timelines(const RunReport& report);

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

/// Curves have the colours of Okabe and Ito, which people with any of the usual colour deficiencies tell apart.
inline constexpr std::string_view kPageStyle =
    R"(:root{--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#cc79a7;--c4:#b58900;--c5:#56b4e9;--c6:#000;--c7:#8a5fbf}
@media (prefers-color-scheme:dark){:root{--c0:#56b4e9;--c1:#e8743b;--c2:#00c795;--c3:#e39ac4;--c4:#f0c442;--c5:#8fd3ff;--c6:#fff;--c7:#b79be0}}
.facts td.l:last-child{white-space:normal;overflow-wrap:anywhere}
.bar{display:inline-block;position:relative;width:110px;height:10px;background:var(--track);border-radius:2px;overflow:hidden}
.bar i{position:absolute;top:0;bottom:0;background:var(--c0)}
.two:after{content:"";position:absolute;left:50%;top:0;bottom:0;width:1px;background:var(--soft)}
.over i{background:var(--c1)}
.charts,.columns{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,400px),1fr));gap:16px 28px}
.columns>div{min-width:0}
figure{margin:0;min-width:0}
figcaption{font-weight:600;font-size:14px}
.keys{font-size:13px;color:var(--soft);display:flex;flex-wrap:wrap;gap:0 14px;min-height:20px}
.keys .key:before{height:0;background:none;border-top:3px solid;vertical-align:middle}
.chart svg{width:100%;height:auto}
.chart text{fill:var(--soft)}
.chart .tick{stroke:var(--soft)}
.chart .curve{fill:none;stroke-width:1.8;stroke-linejoin:round}
.chart .level{stroke-width:1.5}
.chart .dashed{stroke-dasharray:6 4}
.keys .key.dashed:before{border-top-style:dashed}
.c0{stroke:var(--c0)}.c1{stroke:var(--c1)}.c2{stroke:var(--c2)}.c3{stroke:var(--c3)}.c4{stroke:var(--c4)}.c5{stroke:var(--c5)}.c6{stroke:var(--c6)}.c7{stroke:var(--c7)}.bad{stroke:var(--bad)}
.dot.c0{fill:var(--c0)}.dot.c1{fill:var(--c1)}.dot.c2{fill:var(--c2)}.dot.c3{fill:var(--c3)}.dot.c4{fill:var(--c4)}.dot.c5{fill:var(--c5)}.dot.c6{fill:var(--c6)}.dot.c7{fill:var(--c7)}
.key.c0:before{color:var(--c0)}.key.c1:before{color:var(--c1)}.key.c2:before{color:var(--c2)}.key.c3:before{color:var(--c3)}.key.c4:before{color:var(--c4)}.key.c5:before{color:var(--c5)}.key.c6:before{color:var(--c6)}.key.c7:before{color:var(--c7)}.key.bad:before{color:var(--bad)}
)";

}  // namespace pp::run
