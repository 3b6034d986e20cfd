#!/usr/bin/env python3
"""Draws hand-off.svg, data-paths.svg, postgres-crowds.svg, lease.svg, late.svg and durable-time.svg into the folder of this script. Standard library only.

    python3 docs/pictures/draw.py

It also writes for-rustdoc.md: the timelines as the targets of links. Rustdoc copies no files, so its pages contain them.
"""

from pathlib import Path
from urllib.parse import quote
from xml.sax.saxutils import escape

HERE = Path(__file__).parent
INK, SOFT, RULE, GROUND = "#1f2937", "#4b5563", "#9ca3af", "#fbfbfd"
BLUE, TEAL, PURPLE, RED, AMBER = "#2563eb", "#0d9488", "#9333ea", "#dc2626", "#b45309"


class Picture:
    """An SVG with a light background, so that it is readable on a dark page."""

    def __init__(self, width, height, title):
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'font-family="Helvetica, Arial, \'DejaVu Sans\', sans-serif" fill="{INK}">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width}" height="{height}" rx="10" fill="{GROUND}"/>',
        ]

    def add(self, part):
        self.parts.append(part)

    def text(self, x, y, text, size=14, anchor="start", colour=INK, bold=False):
        weight = ' font-weight="bold"' if bold else ""
        self.add(f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="{colour}"{weight}>{escape(text)}</text>')

    def box(self, x, y, width, height, fill, stroke, radius=6, dash=""):
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.add(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}" fill="{fill}" stroke="{stroke}"{dashes}/>')

    def named(self, x, y, width, name, note, colour, height=54):
        """A box with a name and a smaller note."""
        self.box(x, y, width, height, "#ffffff", colour)
        self.text(x + width / 2, y + 23, name, 14, "middle", bold=True)
        self.text(x + width / 2, y + 42, note, 12, "middle", SOFT)

    def line(self, x1, y1, x2, y2, colour=RULE, width=1.0, dash=""):
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.add(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" stroke-width="{width}"{dashes}/>')

    def arrow(self, points, colour, dash="", width=1.8):
        """A line through the points, with a head at the last one."""
        (x1, y1), (x2, y2) = points[-2:]
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
        ux, uy = (x2 - x1) / length, (y2 - y1) / length
        bx, by = x2 - 9 * ux, y2 - 9 * uy
        path = " ".join(f"{x},{y}" for x, y in [*points[:-1], (round(bx, 1), round(by, 1))])
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.add(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashes}/>')
        head = [(x2, y2), (bx - 5 * uy, by + 5 * ux), (bx + 5 * uy, by - 5 * ux)]
        self.add(f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in head)}" fill="{colour}"/>')

    def write(self, name):
        (HERE / name).write_text("\n".join([*self.parts, "</svg>", ""]), encoding="utf-8")


def hand_off():
    """Time runs down; one column per client, and Redis between them."""
    picture = Picture(980, 700, "The hand-off: the releaser's script makes the next waiter the owner")
    picture.text(30, 42, "The hand-off: one round trip from release to the next holder", 19, bold=True)
    lanes = {"A": (130, BLUE), "Redis": (420, INK), "B": (690, TEAL), "C": (880, PURPLE)}
    notes = {"A": "holds the lock", "Redis": "decides, in scripts", "B": "asks first", "C": "asks next"}
    top, bottom = 126, 670
    for name, (x, colour) in lanes.items():
        picture.box(x - 75, 68, 150, 46, "#ffffff", colour)
        picture.text(x, 88, name if name == "Redis" else f"client {name}", 14, "middle", bold=True)
        picture.text(x, 105, notes[name], 12, "middle", SOFT)
        picture.line(x, 114, x, bottom, RULE, 1, "4 4")

    def says(at, start, end, words, colour, dash=""):
        x1, x2 = lanes[start][0], lanes[end][0]
        gap = 7 if x2 > x1 else -7
        picture.arrow([(x1 + gap, at), (x2 - gap, at)], colour, dash)
        # Near Redis, so that no words cross another column.
        side = lanes["Redis"][0]
        right = max(x1, x2) > side
        picture.text(side + 18 if right else side - 18, at - 7, words, 13, "start" if right else "end", colour)

    def holds(name, start, end):
        x, colour = lanes[name]
        picture.add(f'<rect x="{x - 6}" y="{start}" width="12" height="{end - start}" fill="{colour}"/>')

    def waits(name, start, end):
        x, colour = lanes[name]
        picture.add(f'<rect x="{x - 6}" y="{start}" width="12" height="{end - start}" fill="{colour}" fill-opacity="0.25"/>')

    release, granted = 420, 515
    holds("A", top, release)
    waits("B", 150, granted)
    waits("C", 218, bottom)
    holds("B", granted, bottom)
    says(154, "B", "Redis", "acquire: wait", TEAL)
    says(184, "Redis", "B", "queued, first", TEAL, "6 4")
    says(222, "C", "Redis", "acquire: wait", PURPLE)
    says(252, "Redis", "C", "queued, second", PURPLE, "6 4")
    says(308, "B", "Redis", "heartbeat", TEAL)
    says(338, "C", "Redis", "heartbeat", PURPLE)
    picture.text(lanes["A"][0] + 18, 300, "the watchdogs renew the", 12, "start", SOFT)
    picture.text(lanes["A"][0] + 18, 317, "places every third of the", 12, "start", SOFT)
    picture.text(lanes["A"][0] + 18, 334, "place TTL (5 s), and", 12, "start", SOFT)
    picture.text(lanes["A"][0] + 18, 351, "the hold every 10 s", 12, "start", SOFT)
    says(release, "A", "Redis", "release", BLUE)
    picture.box(312, 434, 216, 70, "#fff7ed", AMBER)
    for row, words in enumerate(["one script: A's hold is deleted,", "B is written into the lock, and", "gets a token; then PUBLISH"]):
        picture.text(420, 455 + 19 * row, words, 13, "middle", AMBER)
    says(granted + 12, "Redis", "B", "granted (request, token)", TEAL)
    says(granted + 12, "Redis", "A", "released", BLUE, "6 4")
    picture.text(712, granted + 16, "lock() returns:", 13, "start", TEAL)
    picture.text(712, granted + 34, "no further request", 13, "start", TEAL)
    says(606, "B", "Redis", "renew, during long work", TEAL)
    picture.text(lanes["A"][0] + 18, 606, "C keeps its place,", 12, "start", SOFT)
    picture.text(lanes["A"][0] + 18, 623, "and is now the first", 12, "start", SOFT)
    picture.text(30, 690, "solid bar: holds  \u00b7  pale bar: waits  \u00b7  dashed arrow: an answer", 12, "start", SOFT)
    picture.write("hand-off.svg")


def data_paths():
    """The call on top, left to right; the answer below, right to left; the watchdog under both."""
    picture = Picture(1180, 560, "The two data paths: the call goes out, the answer comes back")
    picture.text(30, 42, "The call goes out, the answer comes back", 19, bold=True)
    for x, width, name, colour in [
        (150, 470, "fairlock-core", BLUE), (640, 330, "fairlock-redis", TEAL), (990, 164, "the server", AMBER),
    ]:
        picture.box(x, 66, width, 470, "#ffffff" if colour != AMBER else "#fff7ed", colour, 10, "5 4")
        picture.text(x + 14, 90, name, 14, "start", colour, True)

    out, back, dog = 116, 270, 430
    picture.named(26, out, 104, "your thread", "lock.lock()", INK)
    picture.named(26, back, 104, "your thread", "guard", INK)
    core = [(166, 132, "Lock", "handle/"), (318, 132, "acquire", "asks, then sleeps"), (470, 136, "dyn Backend", "the seam")]
    redis = [(656, 140, "hand_off", "the request"), (816, 140, "net", "a connection")]
    y = out + 27
    for x, width, name, note in core:
        picture.named(x, out, width, name, note, BLUE)
    for x, width, name, note in redis:
        picture.named(x, out, width, name, note, TEAL)
    picture.named(1006, out, 132, "one .lua script", "picks the next one", AMBER)
    for x1, x2 in [(130, 166), (298, 318), (450, 470), (606, 656), (796, 816), (956, 1006)]:
        picture.arrow([(x1, y), (x2, y)], INK)
    picture.text(656, out + 76, "an answer comes back the same way:", 12, "start", SOFT)
    picture.text(656, out + 93, "granted at once, or a place in the queue", 12, "start", SOFT)

    y = back + 27
    picture.named(1006, back, 132, "PUBLISH", "by the release", AMBER, 70)
    picture.text(1072, back + 59, "script", 12, "middle", SOFT)
    picture.named(816, back, 140, "subscription", "a thread, SUBSCRIBE", TEAL)
    picture.named(656, back, 140, "wake_ups", "finds the client", TEAL)
    picture.named(470, back, 136, "wake", "finds the request", BLUE)
    picture.named(270, back, 160, "claim", "waiting \u2192 held", BLUE)
    for x1, x2 in [(1006, 956), (816, 796), (656, 606), (470, 430), (270, 130)]:
        picture.arrow([(x1, y), (x2, y)], INK)
    picture.arrow([(1072, out + 54), (1072, back)], INK)
    picture.arrow([(366, back), (366, out + 54)], INK, "5 4")
    picture.text(376, back - 26, "wakes the waiter", 12, "start", SOFT)

    picture.named(270, dog, 160, "watchdog", "one thread per client", RED)
    picture.named(470, dog, 136, "renew", "all holds and places", RED)
    y = dog + 27
    picture.arrow([(430, y), (470, y)], RED)
    picture.named(1006, dog, 132, "a .lua script", "also hands on", AMBER)
    picture.arrow([(606, y), (1006, y)], RED)
    picture.text(656, y - 10, "in one call, every third of their times", 12, "start", SOFT)
    picture.text(656, y + 21, "finds what no message told:", 12, "start", SOFT)
    picture.text(656, y + 38, "a free lock, a lost message", 12, "start", SOFT)
    picture.arrow([(1072, dog), (1072, back + 70)], RED)
    picture.arrow([(350, dog), (350, back + 54)], RED)
    picture.text(360, dog - 44, "lost? then flag, channel, callback", 12, "start", SOFT)
    picture.write("data-paths.svg")


# Milliseconds, as `crowds` in `bench/` printed them: of a hand-over, and of the server's processors.
IN_QUEUE = {2: (0.30, 0.10), 8: (0.29, 0.09), 32: (0.34, 0.10), 128: (0.59, 0.22), 512: (1.64, 0.64)}
LISTENING = {0: (0.56, 0.18), 10: (0.70, 0.36), 50: (1.20, 1.02), 100: (1.70, 1.81)}


def crowds():
    """Two rows of bars: what a hand-over costs on PostgreSQL, by those who wait, and by the sessions that listen."""
    picture = Picture(980, 360, "What a hand-over costs on PostgreSQL, by the waiters of the lock and by the sessions that listen")
    picture.text(30, 42, "PostgreSQL: a hand-over, by the waiters of its lock and by the sessions that listen", 19, bold=True)
    top, bottom = 110, 300
    for left, what, sizes in [(60, "waiters of the lock", IN_QUEUE), (540, "other sessions that listen in the database", LISTENING)]:
        most = max(max(costs) for costs in sizes.values())
        step = 380 / len(sizes)
        for at, (size, (time, server)) in enumerate(sizes.items()):
            x = left + at * step
            for dx, cost, colour in [(0, time, BLUE), (26, server, AMBER)]:
                height = max(1.0, round((bottom - top) * cost / most, 1))
                picture.box(x + dx, round(bottom - height, 1), 22, height, colour, colour, radius=2)
                picture.text(x + dx + 11, round(bottom - height - 6, 1), f"{cost:.1f}", 11, "middle", colour)
            picture.text(x + 24, bottom + 18, str(size), 13, "middle")
        picture.line(left - 10, bottom, left + 385, bottom)
        picture.text(left + 187, bottom + 38, what, 13, "middle", SOFT)
    for x, colour, words in [(60, BLUE, "ms until the next one holds and the former one waits"), (540, AMBER, "ms of the server's processors")]:
        picture.box(x, 66, 14, 14, colour, colour, radius=2)
        picture.text(x + 22, 78, words, 13)
    picture.write("postgres-crowds.svg")


def axis(picture, y, ticks, scale, left=170):
    """A line of time with a short stroke, and the number of seconds, at each tick."""
    picture.line(left, y, left + scale(max(ticks)) + 30, y)
    for tick in ticks:
        picture.line(left + scale(tick), y - 5, left + scale(tick), y + 5)
        picture.text(left + scale(tick), y + 20, f"{tick:g} s", 12, "middle", SOFT)


def lease():
    """One bar for the server and one for the holder: the holder's belief ends first."""
    picture = Picture(980, 300, "A lease of 30 s whose renewals are not answered: the holder gives up before the server does")
    picture.text(30, 42, "A lease of 30 s, when the server stops answering", 19, bold=True)
    left, scale = 170, lambda time: 25 * time

    def bar(y, name, start, end, colour, words, pale=False):
        picture.text(left - 14, y + 17, name, 13, "end")
        picture.box(left + scale(start), y, scale(end - start), 26, colour, colour, 3)
        picture.text(left + scale(start) + 10, y + 18, words, 13, "start", "#ffffff" if not pale else INK)

    bar(80, "the holder believes", 0, 29.7, BLUE, "valid, counted from when the last answered request was sent")
    bar(120, "the server keeps", 0.1, 30.1, TEAL, "the hold, counted from when that request arrived")
    bar(160, "the next owner", 30.25, 31.5, PURPLE, "")
    axis(picture, 225, [0, 10, 20, 29.7], scale)
    for at, words in [(0, "request sent"), (10, "first renewal; then one a second"), (29.7, "the guard says lost")]:
        picture.line(left + scale(at), 72, left + scale(at), 220, RULE, 1, "3 4")
        picture.text(left + scale(at) + (40 if at > 20 else 0), 268, words, 13, "end" if at > 20 else "middle" if at else "start")
    picture.text(left + scale(31.5), 206, "within 0.25 s", 12, "end", PURPLE)
    picture.write("lease.svg")


def late():
    """One request that a network keeps back, and what stops it."""
    picture = Picture(980, 250, "A request that arrives late: from 6 s on the server refuses it, and at 8 s the client withdraws it once more")
    picture.text(30, 42, "A request that the network keeps back", 19, bold=True)
    left, scale = 60, lambda time: 95 * time
    for start, end, colour, words in [
        (0, 1, BLUE, "waits"), (1, 6, AMBER, "asked again, or given up; if it arrives now, it may be granted"),
        (6, 9, RED, "if it arrives now, it is refused"),
    ]:
        picture.box(left + scale(start), 90, scale(end - start), 34, colour, colour, 3)
        picture.text(left + scale(start) + 10, 112, words, 13, "start", "#ffffff")
    axis(picture, 160, [0, 1, 6, 8], scale, left)
    for at, words in [(0, "sent"), (1, "no answer"), (6, "its end, by the server's clock"), (8, "withdrawn once more")]:
        picture.line(left + scale(at), 82, left + scale(at), 155, RULE, 1, "3 4")
        picture.text(left + scale(at), 205, words, 13, "middle" if at else "start")
    picture.text(30, 235, "What it was granted has no other holder beside it, and the withdrawal releases it.", 12, "start", SOFT)
    picture.write("late.svg")


def durable():
    """Two lanes, each with what the old holder believes and when the server grants again."""
    picture = Picture(980, 400, "With durable a server that forgot its locks grants nothing for longer than any client believes in one")
    picture.text(30, 42, "durable: the server forgot everything at 0 s", 19, bold=True)
    left, scale = 170, lambda time: 37 * time

    def lane(y, name, trust, claims, grace):
        picture.text(30, y + 2, name, 14, bold=True)
        picture.text(left - 14, y + 29, "holders believe", 13, "end")
        picture.box(left, y + 12, scale(trust), 24, BLUE, BLUE, 3)
        picture.text(left + 10, y + 29, f"{trust:g} s at most after the server confirmed a hold", 13, "start", "#ffffff")
        picture.text(left - 14, y + 63, "live ones reclaim", 13, "end")
        picture.box(left, y + 46, scale(claims), 24, TEAL, TEAL, 3)
        picture.text(left + scale(claims) + 10, y + 63, f"within {claims:g} s, by their next renewal", 13, "start", TEAL)
        picture.text(left - 14, y + 97, "the server grants", 13, "end")
        picture.box(left, y + 80, scale(grace), 24, "#fff7ed", AMBER, 3, "5 4")
        picture.text(left + 10, y + 97, f"nothing, for the grace of {grace:g} s", 13, "start", AMBER)
        picture.box(left + scale(grace), y + 80, scale(21 - grace), 24, PURPLE, PURPLE, 3)
        picture.text(left + scale(grace) + 10, y + 97, "turns go on", 13, "start", "#ffffff")

    lane(80, "One server", 10, 3.3, 10.6)
    lane(215, "Sentinels, or a cluster", 10, 2.5, 18.2)
    axis(picture, 350, [0, 5, 10, 15, 20], scale)
    picture.write("durable-time.svg")


hand_off()
data_paths()
crowds()
lease()
late()
durable()
NAMES = ["timeline", "rw-lock", "semaphore", "postgres-crowds", "hand-off", "lease", "late", "durable-time"]
timelines = {name: quote((HERE / f"{name}.svg").read_text(), safe="/:;,=") for name in NAMES}
(HERE / "for-rustdoc.md").write_text("".join(f"[{name}]: data:image/svg+xml,{svg}\n" for name, svg in timelines.items()))
