"""Plots as SVG, with nothing but the standard library: lines on logarithmic axes, bars, and shares."""

import math
from html import escape

COLOURS = {
    "fairlock": "#c2255c", "redisson-fair": "#e8590c", "redisson": "#f59f00", "python-redis-lock": "#2b8a3e",
    "redis-py": "#74b816", "bsm-redislock": "#1971c2", "redsync": "#22b8cf", "rslock": "#862e9c", "etcd": "#5f3dc4",
    "curator": "#495057", "redisson 3.16": "#e8590c",
}
GREY, INK = "#adb5bd", "#212529"


def text(x, y, words, anchor="start", size=12, colour=INK, weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}" '
            f'font-weight="{weight}">{escape(words)}</text>')


def page(width, height, title, parts):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" font-family="sans-serif"><rect width="100%" height="100%" fill="white"/>'
            f'{text(16, 26, title, size=16, weight="bold")}{"".join(parts)}</svg>\n')


def short(value):
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def lines(title, x_label, y_label, series):
    """series: name → list of (x, low, middle, high). Both axes are logarithmic; the band is the spread."""
    width, height, left, right, top, bottom = 820, 460, 70, 170, 64, 50
    xs = sorted({point[0] for points in series.values() for point in points})
    ys = [value for points in series.values() for point in points for value in point[1:] if value > 0]
    low, high = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))

    def x_at(x):
        span = math.log(xs[-1] / xs[0]) or 1
        return left + (width - left - right) * math.log(x / xs[0]) / span

    def y_at(y):
        return height - bottom - (height - top - bottom) * (math.log10(max(y, 10**low)) - low) / (high - low)

    parts = []
    for power in range(low, high + 1):
        y = y_at(10**power)
        parts.append(f'<path d="M{left} {y:.1f}H{width - right}" stroke="#e9ecef"/>')
        parts.append(text(left - 8, y + 4, short(10**power), "end"))
    for x in xs:
        parts.append(text(x_at(x), height - bottom + 20, f"{x:,}", "middle"))
    parts.append(text((left + width - right) / 2, height - 10, x_label, "middle"))
    parts.append(text(16, 44, y_label, colour="#495057"))
    labels = []
    for name, points in series.items():
        colour = COLOURS.get(name, GREY)
        points = sorted(points)
        upper = [f"{x_at(p[0]):.1f} {y_at(p[3]):.1f}" for p in points]
        lower = [f"{x_at(p[0]):.1f} {y_at(p[1]):.1f}" for p in reversed(points)]
        parts.append(f'<path d="M{"L".join(upper + lower)}Z" fill="{colour}" opacity="0.15"/>')
        middle = "L".join(f"{x_at(p[0]):.1f} {y_at(p[2]):.1f}" for p in points)
        stroke = 3.5 if name == "fairlock" else 1.8
        parts.append(f'<path d="M{middle}" fill="none" stroke="{colour}" stroke-width="{stroke}"/>')
        parts += [f'<circle cx="{x_at(p[0]):.1f}" cy="{y_at(p[2]):.1f}" r="3" fill="{colour}"/>' for p in points]
        labels.append([y_at(points[-1][2]), name, colour, x_at(points[-1][0])])
    labels.sort()
    for before, label in zip(labels, labels[1:]):
        label[0] = max(label[0], before[0] + 14)
    for y, name, colour, x in labels:
        weight = "bold" if name == "fairlock" else "normal"
        parts.append(text(x + 10, y + 4, name, colour=colour, weight=weight))
    return page(width, height, title, parts)


def bars(title, note, rows, unit="", mark=None):
    """rows: (name, low, middle, high). The thin line is the spread; `mark` is the position of a reference line."""
    width, left, right, step = 820, 190, 90, 26
    height = 70 + step * len(rows)
    most = max([row[3] for row in rows] + [mark or 0])

    def x_at(value):
        return left + (width - left - right) * value / most

    parts = [text(16, 44, note, colour="#495057")]
    for n, (name, low, middle, high) in enumerate(rows):
        y = 60 + n * step
        colour = COLOURS.get(name, GREY)
        weight = "bold" if name == "fairlock" else "normal"
        parts.append(text(left - 10, y + 14, name, "end", weight=weight))
        parts.append(f'<rect x="{left}" y="{y}" width="{max(1, x_at(middle) - left):.1f}" height="{step - 8}" '
                     f'fill="{colour}"/>')
        parts.append(f'<path d="M{x_at(low):.1f} {y + 9}H{x_at(high):.1f}" stroke="{INK}"/>')
        parts.append(text(x_at(high) + 8, y + 14, f"{short(middle)}{unit}"))
    if mark:
        parts.append(f'<path d="M{x_at(mark):.1f} 52V{height - 12}" stroke="{INK}" stroke-dasharray="4 3"/>')
    return page(width, height, title, parts)


def shares(title, note, rows):
    """rows: name → the turns of each client, sorted. One row of bars each; the common scale is an equal share."""
    width, left, right, top, share, cut = 820, 170, 150, 62, 18, 3
    step = cut * share + 14
    height = top + step * len(rows) + 6
    parts = [text(16, 44, f"{note}; cut off at {cut} times that", colour="#495057")]
    for n, (name, got) in enumerate(rows.items()):
        base = top + (n + 1) * step - 8
        equal = sum(got) / len(got)
        bar = (width - left - right) / len(got)
        colour = COLOURS.get(name, GREY)
        parts.append(text(left - 10, base - 4, name, "end", weight="bold" if name == "fairlock" else "normal"))
        for m, part in enumerate(got):
            tall = share * min(part / equal, cut)
            x = left + m * bar
            parts.append(f'<rect x="{x:.1f}" y="{base - tall:.1f}" width="{bar - 1.5:.1f}" height="{tall:.1f}" '
                         f'fill="{colour}"/>')
            if part > cut * equal:
                parts.append(f'<path d="M{x:.1f} {base - tall + 5:.1f}l{bar - 1.5:.1f} -3" stroke="white" '
                             f'stroke-width="2"/>')
        parts.append(f'<path d="M{left} {base}H{width - right}" stroke="{GREY}"/>')
        parts.append(f'<path d="M{left} {base - share:.1f}H{width - right}" stroke="{INK}" stroke-dasharray="4 3"/>')
        span = f"{got[0]:,}" if got[0] == got[-1] else f"{got[0]:,} to {got[-1]:,}"
        parts.append(text(width - right + 10, base - 4, f"{span} turns"))
    return page(width, height, title, parts)
