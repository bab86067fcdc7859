// How operations look in every picture: one row per kind.
#pragma once

#include <array>
#include <string_view>

#include "libplan/schedule/program.h"
#include "libprofile/core/svg_writer.h"

namespace pp::plan {

struct OpStyle {
  OpKind kind;
  std::string_view name;
  char fill;        ///< behind the label where there is no colour
  Rgb color;        ///< black text is readable on it
  int ansi;         ///< the same in a terminal's 256 colours
  int ansi_second;  ///< for every other micro-batch, so that neighbours of one kind stand apart
};

/// The colours are those of Okabe and Ito, which people with any of the usual colour deficiencies tell apart.
inline constexpr std::array kOpStyles{
    OpStyle{OpKind::forward, "forward", '-', 0x56B4E9, 75, 117},
    OpStyle{OpKind::backward, "backward", '=', 0xE69F00, 172, 214},
    OpStyle{OpKind::input_gradient, "input gradient", '~', 0xF0E442, 220, 228},
    OpStyle{OpKind::weight_gradient, "weight gradient", '+', 0x00B386, 36, 79},
    OpStyle{OpKind::recompute, "recompute", ':', 0xCC79A7, 175, 218},
    OpStyle{OpKind::all_reduce, "all-reduce", '#', 0xE8743B, 167, 209},
    OpStyle{OpKind::tied_all_reduce, "tied all-reduce", '%', 0xF4A582, 173, 216},
    OpStyle{OpKind::update, "update", '*', 0xB0B0B0, 248, 252},
    OpStyle{OpKind::load, "weight load", '>', 0x9C9C5A, 143, 186},
    OpStyle{OpKind::evict, "weight evict", '<', 0x8FA8B8, 109, 152}};
static_assert(kOpStyles.size() == EnumNames<OpKind>::table.size(), "every kind of operation has a style");

constexpr const OpStyle& style_of(OpKind kind) {
  for (const OpStyle& style : kOpStyles) {
    if (style.kind == kind) return style;
  }
  return kOpStyles.back();
}

}  // namespace pp::plan
