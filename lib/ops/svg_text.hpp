// SPDX-License-Identifier: Apache-2.0
// Texts in an SVG file: names hold any bytes, and nobody measures them before the browser does.
#pragma once

#include <string>
#include <string_view>

namespace ckpt::ops {

/// Safe in XML: its special characters become entities; what XML has no place for, and what isn't UTF-8, U+FFFD.
[[nodiscard]] std::string xml_text(std::string_view text);

/// About as wide as a sans-serif font draws it, rather more than less.
[[nodiscard]] double text_width(std::string_view text, double font_size);

/// The text, or as much of its beginning and end as fits, with a gap.
[[nodiscard]] std::string fitting(std::string_view text, double width, double font_size);

/// The text, or as much of its end as fits: of a path what tells it from others.
[[nodiscard]] std::string ending(std::string_view text, double width, double font_size);

}  // namespace ckpt::ops
