"""A scatter plot of two equal logarithmic axes with their diagonal, as SVG."""

import math
import typing
from xml.sax.saxutils import escape

from charts import COLOURS

SIZE, MARGIN = 520, 60
NAMES = 210  # for the names beside the plot, of points or of series
NAME_HEIGHT = 14


class Point(typing.NamedTuple):
    x: float
    y: float
    label: str  # shown where the pointer rests, or beside the plot


def ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten; the powers alone where these stand too close."""
    steps = (1, 2, 5) if high / low < 1e4 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [value for power in powers for value in (10.0**power * k for k in steps) if low <= value <= high]


def spread(wanted: list[float], distance: float, low: float, high: float) -> list[float]:
    """Ascending places near the wanted ones, which ascend, at least so far apart where there is room."""
    distance = min(distance, (high - low) / max(len(wanted), 1))
    places = []
    for number, place in enumerate(wanted):
        least = places[-1] + distance if places else low
        places.append(max(least, min(place, high - distance * (len(wanted) - 1 - number))))
    return places


def scatter_svg(series: dict[str, list[Point]], x_title: str, y_title: str, title: str = "", named: bool = False) -> str:
    """All coordinates above 0. `named`: each point's label stands beside the plot, with a line to it."""
    near, far = MARGIN, SIZE - MARGIN
    values = [value for points in series.values() for point in points for value in (point.x, point.y)]
    low, high = min(values) / 1.25, max(values) * 1.25
    span = math.log(high / low)

    def along(value: float) -> float:
        return math.log(value / low) / span * (SIZE - 2 * MARGIN)

    def x(value: float) -> str:
        return f"{MARGIN + along(value):.1f}"

    def y(value: float) -> str:
        return f"{SIZE - MARGIN - along(value):.1f}"

    width = SIZE + (NAMES if named or len(series) > 1 else 0)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {SIZE}" font-family="sans-serif" font-size="12">',
             f'<rect width="{width}" height="{SIZE}" fill="white"/>']
    if title:
        parts.append(f'<text x="{near}" y="22" font-size="15" font-weight="bold">{escape(title)}</text>')
    for value in ticks(low, high):
        parts += [f'<path d="M{x(value)} {near}V{far}M{near} {y(value)}H{far}" stroke="#ddd"/>',
                  f'<text x="{x(value)}" y="{far + 16}" text-anchor="middle">{value:g}</text>',
                  f'<text x="{near - 6}" y="{y(value)}" text-anchor="end" dominant-baseline="middle">{value:g}</text>']
    parts += [f'<rect x="{near}" y="{near}" width="{far - near}" height="{far - near}" fill="none" stroke="black"/>',
              f'<path d="M{near} {far}L{far} {near}" stroke="#888"/>',
              f'<text x="{SIZE / 2}" y="{SIZE - 16}" text-anchor="middle">{escape(x_title)}</text>',
              f'<text transform="translate(16 {SIZE / 2}) rotate(-90)" text-anchor="middle">{escape(y_title)}</text>']
    for number, (name, points) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        if len(series) > 1:
            parts.append(f'<text x="{near + 10 if named else far + 12}" y="{near + 20 + 17 * number}" fill="{colour}">&#9679; {escape(name)}</text>')
        parts += [f'<circle cx="{x(point.x)}" cy="{y(point.y)}" r="3.5" fill="{colour}" fill-opacity="0.7">'
                  f"<title>{escape(point.label)}</title></circle>" for point in points]
    if named:
        points = sorted((point for points in series.values() for point in points), key=lambda point: -point.y)
        places = spread([float(y(point.y)) for point in points], NAME_HEIGHT, near, far)
        for point, place in zip(points, places):
            parts += [f'<path d="M{x(point.x)} {y(point.y)}L{far + 8} {place:.1f}h6" fill="none" stroke="#bbb" stroke-width="0.7"/>',
                      f'<text x="{far + 18}" y="{place:.1f}" dominant-baseline="middle">{escape(point.label)}</text>']
    return "\n".join([*parts, "</svg>", ""])
