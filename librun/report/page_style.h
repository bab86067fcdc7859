// The style of the report page: light and dark, narrow and wide.
#pragma once

#include <string_view>

namespace pp::run {

/// Curves have the colours of Okabe and Ito, which people with any of the usual colour deficiencies tell apart.
/// The rules for `.timeline` turn the picture of libplan dark.
inline constexpr std::string_view kPageStyle =
    R"(:root{color-scheme:light dark;--page:#f3f4f6;--card:#fff;--ink:#1c2126;--soft:#5f6873;--line:#dfe3e8;--bar:#e9ecf0;
--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#cc79a7;--c4:#b58900;--c5:#56b4e9;--c6:#000;--c7:#8a5fbf;--bad:#c00}
@media (prefers-color-scheme:dark){:root{--page:#14171a;--card:#1d2125;--ink:#e4e7ea;--soft:#9aa4af;--line:#343a41;--bar:#2b3138;
--c0:#56b4e9;--c1:#e8743b;--c2:#00c795;--c3:#e39ac4;--c4:#f0c442;--c5:#8fd3ff;--c6:#fff;--c7:#b79be0;--bad:#ff6b6b}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.45 system-ui,sans-serif}
main{max-width:1240px;margin:0 auto;padding:20px 16px 40px}
h1{font-size:24px;margin:0 0 2px;overflow-wrap:anywhere}
h2{font-size:17px;margin:0 0 10px}
p{margin:8px 0;overflow-wrap:anywhere}
h1+p{margin-top:0}
section>p:last-child{margin-bottom:0}
.soft,small{color:var(--soft)}
section{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:16px;margin-top:16px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin-top:16px}
.tile{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px 14px}
.tile b{display:block;font-size:21px;font-weight:600}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums}
th{font-weight:600;color:var(--soft);text-align:right;vertical-align:bottom}
td,th{padding:4px 14px 4px 0;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
tr>*:last-child{padding-right:0}
td.l,th.l{text-align:left}
.facts td.l:last-child{white-space:normal;overflow-wrap:anywhere}
.bar{display:inline-block;position:relative;width:110px;height:10px;background:var(--bar);border-radius:2px;overflow:hidden}
.bar i{position:absolute;top:0;bottom:0;background:var(--c0)}
.two:after{content:"";position:absolute;left:50%;top:0;bottom:0;width:1px;background:var(--soft)}
.over i{background:var(--c1)}
.charts,.columns{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,400px),1fr));gap:16px 28px}
.columns>div{min-width:0}
figure{margin:0;min-width:0}
figcaption{font-weight:600;font-size:14px}
.keys{font-size:13px;color:var(--soft);display:flex;flex-wrap:wrap;gap:0 14px;min-height:20px}
.key:before{content:"";display:inline-block;width:14px;border-top:3px solid;margin-right:5px;vertical-align:middle}
.chart svg{width:100%;height:auto;display:block}
.chart text{font-size:12px;fill:var(--soft)}
.chart .grid{stroke:var(--line);stroke-opacity:1}
.chart .tick{stroke:var(--soft)}
.chart .curve{fill:none;stroke-width:1.8;stroke-linejoin:round}
.chart .level{stroke-width:1.5}
.chart .dashed{stroke-dasharray:6 4}
.key.dashed:before{border-top-style:dashed}
.timeline+.timeline{margin-top:14px}
.timeline svg{display:block}
)"
    R"(.c0{stroke:var(--c0)}.c1{stroke:var(--c1)}.c2{stroke:var(--c2)}.c3{stroke:var(--c3)}.c4{stroke:var(--c4)}.c5{stroke:var(--c5)}.c6{stroke:var(--c6)}.c7{stroke:var(--c7)}.bad{stroke:var(--bad)}
.dot.c0{fill:var(--c0)}.dot.c1{fill:var(--c1)}.dot.c2{fill:var(--c2)}.dot.c3{fill:var(--c3)}.dot.c4{fill:var(--c4)}.dot.c5{fill:var(--c5)}.dot.c6{fill:var(--c6)}.dot.c7{fill:var(--c7)}
.key.c0:before{color:var(--c0)}.key.c1:before{color:var(--c1)}.key.c2:before{color:var(--c2)}.key.c3:before{color:var(--c3)}.key.c4:before{color:var(--c4)}.key.c5:before{color:var(--c5)}.key.c6:before{color:var(--c6)}.key.c7:before{color:var(--c7)}.key.bad:before{color:var(--bad)}
@media (prefers-color-scheme:dark){.timeline svg>rect:first-of-type{fill:var(--card)}
.timeline text{fill:#dfe3e7}.timeline text.s,.timeline text.w{fill:#9aa4af}.timeline text.c,.timeline text.n{fill:#000}
.timeline .bg{fill:#262b31}.timeline pattern rect{fill:#23282d}.timeline pattern path{stroke:#414950}.timeline .idle{stroke:#3a4148}
.timeline .grid{stroke:#fff}.timeline .act,.timeline .grad{stroke:#e4e7ea}.timeline .tip{fill:#e4e7ea}.timeline .limit{stroke:#ff6b6b}
.timeline [class^="F"],.timeline [class^="B"],.timeline [class^="I"],.timeline [class^="W"],.timeline [class^="R"],.timeline [class^="A"],.timeline [class^="U"]{stroke:#1d2125}}
@media print{body{background:#fff}section,.tile{break-inside:avoid}}
)";

}  // namespace pp::run
