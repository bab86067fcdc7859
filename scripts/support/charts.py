"""Line and bar charts as SVG that loads nothing."""

import math
import typing
from xml.sax.saxutils import escape

COLOURS = ["#1f5fa8", "#c8501e", "#3a8a3f", "#8a3a9a", "#b08a00", "#2aa0a0", "#c03060", "#606060", "#6a7fd8", "#7a5a30", "#e08ab0",
           "#88b04b", "#4a2a7a", "#ff8c1a", "#00b0d8", "#a03010", "#a0a0a0", "#203040"]
WIDTH, HEIGHT = 900, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 270, 20, 52


class Line(typing.NamedTuple):
    name: str
    points: list[tuple[float, float]]
    colour: int = 0  # a number of COLOURS, from where it begins anew
    dashed: bool = False


def steps(low: float, high: float, wanted: int = 6) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten within low and high, about as many as wanted."""
    raw = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(k * power for k in (1, 2, 5, 10) if k * power >= raw * (1 - 1e-9))
    return [number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def header(width: int, height: int, title: str = "") -> list[str]:
    return [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
            f'<rect width="{width}" height="{height}" fill="white"/>',
            *([f'<text x="{LEFT}" y="22" font-size="15" font-weight="bold">{escape(title)}</text>'] if title else [])]


def lines_svg(lines: list[Line], x_title: str, y_title: str, powers_of_two: bool = False, from_zero: bool = True, title: str = "") -> str:
    """x along powers of two, or linear; y linear. All x above 0 where they are powers of two."""
    lines = [line for line in lines if line.points]
    xs = [x for line in lines for x, _ in line.points] or [1.0]
    ys = [y for line in lines for _, y in line.points] or [1.0]
    along = math.log2 if powers_of_two else float
    x_low, x_high = along(min(xs)) if powers_of_two else 0.0, along(max(xs))
    y_low, y_high = 0.0 if from_zero else min(ys), max(ys)
    x_high += (x_high <= x_low)
    y_high += (y_high <= y_low)
    top = TOP + (24 if title else 0)
    height = max(HEIGHT, top + BOTTOM + 18 * len(lines))
    right, floor = WIDTH - RIGHT, height - BOTTOM

    def x(value: float) -> float:
        return LEFT + (along(value) - x_low) / (x_high - x_low) * (right - LEFT)

    def y(value: float) -> float:
        return floor - (value - y_low) / (y_high - y_low) * (floor - top)

    parts = header(WIDTH, height, title)
    for value in (sorted(set(xs)) if powers_of_two else steps(x_low, x_high)):
        parts += [f'<path d="M{x(value):.1f} {top}V{floor}" stroke="#ddd"/>',
                  f'<text x="{x(value):.1f}" y="{floor + 16}" text-anchor="middle">{value:g}</text>']
    for value in steps(y_low, y_high):
        parts += [f'<path d="M{LEFT} {y(value):.1f}H{right}" stroke="#ddd"/>',
                  f'<text x="{LEFT - 6}" y="{y(value):.1f}" text-anchor="end" dominant-baseline="middle">{value:g}</text>']
    parts += [f'<rect x="{LEFT}" y="{top}" width="{right - LEFT}" height="{floor - top}" fill="none" stroke="black"/>',
              f'<text x="{(LEFT + right) / 2}" y="{height - 14}" text-anchor="middle">{escape(x_title)}</text>',
              f'<text transform="translate(16 {(top + floor) / 2}) rotate(-90)" text-anchor="middle">{escape(y_title)}</text>']
    for number, line in enumerate(lines):
        colour = COLOURS[line.colour % len(COLOURS)]
        dash = ' stroke-dasharray="5 4"' if line.dashed else ""
        path = "L".join(f"{x(a):.1f} {y(b):.1f}" for a, b in line.points)
        legend = top + 8 + 18 * number
        parts += [f'<g stroke="{colour}" fill="none"><title>{escape(line.name)}</title><path d="M{path}" stroke-width="1.8"{dash}/>',
                  *(f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="2.2" fill="{colour}"/>' for a, b in line.points),
                  f'<path d="M{right + 12} {legend}h26" stroke-width="1.8"{dash}/></g>',
                  f'<text x="{right + 44}" y="{legend}" dominant-baseline="middle">{escape(line.name)}</text>']
    return "\n".join([*parts, "</svg>", ""])


def stacked(charts: list[str]) -> str:
    """One picture of charts of lines_svg(), below each other."""
    heights = [int(chart.split('viewBox="0 0 ')[1].split('"')[0].split()[1]) for chart in charts]
    parts = [chart.replace("<svg ", f'<svg y="{sum(heights[:number])}" width="{WIDTH}" height="{heights[number]}" ', 1)
             for number, chart in enumerate(charts)]
    return "\n".join([*header(WIDTH, sum(heights)), *parts, "</svg>", ""])


def bars_svg(rows: list[tuple[str, list[float | None]]], names: list[str], x_title: str) -> str:
    """For each row a bar of each name's value; None is left out."""
    left, right, thick, gap = 230, 70, 11, 10
    each = thick * len(names) + gap
    width, floor = WIDTH, 34 + each * len(rows)
    largest = max((value for _, values in rows for value in values if value is not None), default=1.0) or 1.0

    def length(value: float) -> float:
        return value / largest * (width - left - right)

    parts = header(width, floor + 44)
    for number, name in enumerate(names):
        parts.append(f'<text x="{left + 140 * number}" y="18" fill="{COLOURS[number]}">&#9632; {escape(name)}</text>')
    for value in steps(0, largest):
        parts += [f'<path d="M{left + length(value):.1f} 28V{floor}" stroke="#ddd"/>',
                  f'<text x="{left + length(value):.1f}" y="{floor + 16}" text-anchor="middle">{value:g}</text>']
    for place, (label, values) in enumerate(rows):
        top = 34 + each * place
        parts.append(f'<text x="{left - 8}" y="{top + thick * len(names) / 2:.1f}" text-anchor="end" '
                     f'dominant-baseline="middle">{escape(label)}</text>')
        for number, value in enumerate(values):
            if value is not None:
                parts.append(f'<rect x="{left}" y="{top + thick * number}" width="{length(value):.1f}" height="{thick - 1}" '
                             f'fill="{COLOURS[number]}"><title>{escape(label)}: {escape(names[number])} {value:.4g}</title></rect>')
    parts.append(f'<text x="{(left + width - right) / 2}" y="{floor + 36}" text-anchor="middle">{escape(x_title)}</text>')
    return "\n".join([*parts, "</svg>", ""])
