// The few SVG elements that our pictures are made of, as text: small, escaped, the same bytes for the same
// input.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pp {

/// 0xRRGGBB.
using Rgb = std::uint32_t;

/// `&`, `<`, `>` and quotes as entities; control characters, which XML cannot hold, as spaces.
std::string xml_escaped(std::string_view text);

/// At most two decimals, no trailing zeros, never `-0`. Throws pp::Error (internal) for what no coordinate can
/// be: not finite, or beyond 1e9.
std::string svg_number(double value);

/// Height in pixels of the pictures' usual text.
inline constexpr double kSvgFont = 11;
/// Pixels that `text` (UTF-8) takes at most, for a font that is not known here.
double text_width(std::string_view text, double font = kSvgFont);

/// `#56b4e9`.
std::string svg_color(Rgb color);
/// `color` with `share` of white, 0..1.
Rgb lighter(Rgb color, double share);

enum class TextAnchor { start, middle, end };

class SvgWriter {
 public:
  /// A document of `width` x `height` pixels; `style` is its CSS.
  SvgWriter(double width, double height, std::string_view style);

  /// `tooltip` empty: none. `css` is a class name.
  void rect(double x, double y, double width, double height, std::string_view css,
            std::string_view tooltip = {});
  void line(double x1, double y1, double x2, double y2, std::string_view css, std::string_view tooltip = {});
  void text(double x, double y, std::string_view css, std::string_view content,
            TextAnchor anchor = TextAnchor::start);
  /// `data` is a path's commands.
  void path(std::string_view data, std::string_view css, std::string_view tooltip = {});
  /// Definitions and other elements, as they are.
  void raw(std::string_view markup) { text_ += markup; }
  /// Once, at the end.
  std::string finish() && { return std::move(text_) + "</svg>\n"; }

 private:
  void attribute(std::string_view name, double value);
  void close(std::string_view element, std::string_view css, std::string_view tooltip);

  std::string text_;
};

}  // namespace pp
