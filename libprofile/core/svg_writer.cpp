#include "libprofile/core/svg_writer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "libprofile/core/error.h"

namespace pp {
namespace {

constexpr double kMostOfPicture = 1e9;

}  // namespace

std::string xml_escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '"': escaped += "&quot;"; break;
      case '\n': escaped += c; break;
      default: escaped += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return escaped;
}

std::string svg_number(double value) {
  if (!(std::abs(value) <= kMostOfPicture))
    throw Error(ErrorKind::internal, "a picture has a coordinate of " + std::to_string(value));
  std::array<char, 32> text{};
  const double rounded = static_cast<double>(std::llround(value * 100)) / 100;
  char* end = std::to_chars(text.data(), text.data() + text.size(), rounded, std::chars_format::fixed).ptr;
  return {text.data(), end};
}

double text_width(std::string_view text, double font) {
  const auto continuation = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; };
  return 0.62 * font *
         static_cast<double>(text.size() - static_cast<std::size_t>(std::ranges::count_if(text, continuation)));
}

std::string svg_color(Rgb color) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "#%06x", static_cast<unsigned>(color & 0xFFFFFFU));
  return text.data();
}

Rgb lighter(Rgb color, double share) {
  Rgb mixed = 0;
  for (const int shift : {0, 8, 16}) {
    const double channel = (color >> shift) & 0xFFU;
    mixed |= static_cast<Rgb>(std::lround(channel + (255 - channel) * share)) << shift;
  }
  return mixed;
}

SvgWriter::SvgWriter(double width, double height, std::string_view style) {
  const std::string w = svg_number(width);
  const std::string h = svg_number(height);
  text_ = R"(<svg xmlns="http://www.w3.org/2000/svg" width=")" + w + R"(" height=")" + h +
          R"(" viewBox="0 0 )" + w + ' ' + h + "\" font-family=\"sans-serif\">\n<style>\n" +
          std::string(style) + "</style>\n";
}

void SvgWriter::attribute(std::string_view name, double value) {
  text_.append(1, ' ').append(name).append("=\"").append(svg_number(value)).append(1, '"');
}

void SvgWriter::close(std::string_view element, std::string_view css, std::string_view tooltip) {
  text_.append(" class=\"").append(css).append(1, '"');
  if (tooltip.empty()) {
    text_ += "/>\n";
  } else {
    text_.append("><title>").append(xml_escaped(tooltip)).append("</title></").append(element).append(">\n");
  }
}

void SvgWriter::rect(double x, double y, double width, double height, std::string_view css,
                     std::string_view tooltip) {
  text_ += "<rect";
  attribute("x", x);
  attribute("y", y);
  attribute("width", width);
  attribute("height", height);
  close("rect", css, tooltip);
}

void SvgWriter::line(double x1, double y1, double x2, double y2, std::string_view css,
                     std::string_view tooltip) {
  text_ += "<line";
  attribute("x1", x1);
  attribute("y1", y1);
  attribute("x2", x2);
  attribute("y2", y2);
  close("line", css, tooltip);
}

void SvgWriter::text(double x, double y, std::string_view css, std::string_view content, TextAnchor anchor) {
  text_ += "<text";
  attribute("x", x);
  attribute("y", y);
  if (anchor == TextAnchor::middle) text_ += " text-anchor=\"middle\"";
  if (anchor == TextAnchor::end) text_ += " text-anchor=\"end\"";
  text_.append(" class=\"").append(css).append("\">").append(xml_escaped(content)).append("</text>\n");
}

void SvgWriter::path(std::string_view data, std::string_view css, std::string_view tooltip) {
  text_.append("<path d=\"").append(data).append(1, '"');
  close("path", css, tooltip);
}

}  // namespace pp
