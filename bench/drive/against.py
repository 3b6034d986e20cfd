"""Measures this working tree's fairlock beside that of another commit, in turns: bench/against calls this.

    against.py BUILD OTHER NAME [--rounds N] [--only scripts,hand-offs] [--quick]
"""

import argparse
import os
import re
import statistics
import subprocess
import sys

from queue_cost import compare
from servers import Servers
from workers import Stuck, Worker
from workloads import RENEW_LEASE, Scale, apart, crowd, hand_off, many, renewal_usage, uncontended


def in_turns(measure):
    """The figures of both builds from a function that measures one; the second build is measured first in odd rounds."""

    def both(servers, scale, builds, is_odd):
        order = reversed(builds) if is_odd else builds
        found = {build: measure(servers, scale, build) for build in order}
        return {name: [found[build].get(name) for build in builds] for name in found[builds[0]]}

    return both


@in_turns
def cycle(servers, scale, build):
    figures = uncontended(servers, scale, "fairlock", None, build)
    return {"uncontended cycle: p50, µs": figures["p50 µs"], "uncontended cycle: server CPU, µs": figures["server µs"]}


def script_time(scenes):
    """Of a step, in turns of 20. A scene has a mode of bench/src/steps.rs, and its number."""

    def measure(servers, scale, builds, _):
        figures = {}
        what, unit, batches = "script time", "µs", 20 if scale.quick else 50
        if servers.counts_instructions:
            what, unit, batches = "the server", "instructions", 1
        for name, (mode, count) in scenes.items():
            lines = [(count, build, mode) for build in builds]
            figures[f"{what}: {name}, {unit}"] = compare(servers, lines, batches)
        return figures

    return measure


SCRIPTS = {
    "uncontended cycle": ("steps", 0),
    "hand-off, 8 in line": ("steps", 8),
    "hand-off, 1,000 in line": ("steps", 1000),
}
SHARED = {
    "a reader alone": ("steps-reader", 0),
    "a reader beside 3": ("steps-reader", 3),
    "a writer alone": ("steps-writer", 0),
    "writer to writer": ("steps-writer", 1),
    "4 readers, a writer, 4 readers: a step": ("steps-batch", 0),
    "a permit beside 3, of 32": ("steps-permit", 3),
    "permit to permit, all 4 taken": ("steps-full", 1),
}


def threads(count):
    @in_turns
    def measure(servers, scale, build):
        figures = hand_off(servers, scale, "fairlock", count, build)
        return {f"hand-offs/s, {count} threads": figures["hand-offs/s"]}

    return measure


@in_turns
def processes(servers, scale, build):
    return {"hand-offs/s, 8 processes": crowd(servers, scale, build)["hand-offs/s"]}


def names(count):
    @in_turns
    def measure(servers, scale, build):
        figures = many(servers, scale, "fairlock", None, build, count)
        what = f"{count} threads, 10,000 names"
        return {f"{what}: ops/s": figures["ops/s"],
                f"{what}: p50, µs": figures.get("p50 µs"),
                f"{what}: p99, µs": figures.get("p99 µs"),
                f"{what}: client CPU, µs": figures["client µs"],
                f"{what}: server CPU, µs": figures["server µs"]}

    return measure


def on_postgres(count):
    @in_turns
    def measure(servers, scale, build):
        if "BENCH_POSTGRES" not in servers.environment:
            servers.start_postgres()
        figures = many(servers, scale, "postgres-fairlock", None, build, count)
        return {f"PostgreSQL, {count} threads on free locks: {name}": figure for name, figure in figures.items()}

    return measure


@in_turns
def client(servers, _, build):
    return {f"the client: uncontended cycle, {backend}, instructions": count
            for backend, count in client_instructions(servers, build).items()}


def client_instructions(servers, build):
    """Of an uncontended cycle, by callgrind, by backend."""
    def count(backend, cycles):
        words = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", f"{build}/release/allocations", backend]
        done = subprocess.run([*words, str(cycles)], env=servers.environment, check=True, capture_output=True, text=True)
        return int(re.search(r"Collected *: (\d+)", done.stderr)[1])

    return {backend: (count(backend, 13_000) - count(backend, 1000)) / 12_000 for backend in ("redis", "memory")}


@in_turns
def allocations(servers, _, build):
    return {f"allocations a cycle, {backend}": float(count)
            for backend, (count, _) in allocations_of(servers, build).items()}


def allocations_of(servers, build):
    """Allocations and bytes of an uncontended cycle, by backend."""
    words = subprocess.run([f"{build}/release/allocations"], env=servers.environment, check=True, capture_output=True,
                           text=True).stdout.split()
    return {words[at]: words[at + 1 : at + 3] for at in (0, 3)}


@in_turns
def renewals(servers, scale, build):
    with Worker(servers, "fairlock", "renew", count=scale.holds, lease=RENEW_LEASE, build=build) as worker:
        _, used = renewal_usage(servers, scale, worker)
    return {f"renewal of {scale.holds:,} holds: {side} CPU, %": used[f"{side} cpu %"] for side in ("server", "client")}


@in_turns
def memory(servers, scale, build):
    one, four = (apart(servers, scale, "memory", threads, build) for threads in (1, 4))
    return {"memory: uncontended cycle, ns": one["p50 µs"] * 1e3,
            "memory: 4 threads on 4 locks ÷ 1 thread": four["ops/s"] / one["ops/s"]}


# name, what it measures, rounds if fewer
ROWS = {
    "scripts": (script_time(SCRIPTS), None),
    "shared": (script_time(SHARED), None),
    "uncontended": (cycle, None),
    "allocations": (allocations, 1),
    **{f"hand-offs-{count}": (threads(count), None) for count in (2, 8, 32, 128)},
    "processes": (processes, None),
    "names": (names(16), None),
    **{f"names-{count}": (names(count), None) for count in (2, 64, 256)},
    **{f"postgres-{count}": (on_postgres(count), None) for count in (1, 8, 32)},
    "client": (client, 1),
    "renewals": (renewals, 3),
    "memory": (memory, None),
}
BY_INSTRUCTIONS = ("scripts", "shared", "client")
ON_REQUEST = ("names-2", "names-64", "names-256", "postgres-1", "postgres-8", "postgres-32", "client")


def rounds_of(servers, scale, row, builds, rounds):
    """name → for each round the figure of both builds; without those that one of them does not have."""
    measure, most = ROWS[row]
    found = {}
    for turn in range(min(rounds, most or rounds)):
        for name, pair in measure(servers, scale, builds, turn % 2).items():
            if None not in pair:
                found.setdefault(name, []).append(pair)
        link = servers.link()
        link.ask("FLUSHALL")
        link.close()
    return found


def short_turns(scale):
    scale.seconds = 0.25 if scale.quick else 0.6
    scale.holds = 1000 if scale.quick else 10_000
    return scale


def ratios(pairs):
    return [ours / theirs for ours, theirs in pairs if theirs]


def number(value):
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def shown(values):
    values = sorted(values)
    middle = number(statistics.median(values))
    return middle if number(values[0]) == number(values[-1]) else f"{middle} [{number(values[0])} – {number(values[-1])}]"


def main():
    parser = argparse.ArgumentParser(prog="bench/against")
    parser.add_argument("build")
    parser.add_argument("other")
    parser.add_argument("name")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--only", default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--instructions", action="store_true")
    options = parser.parse_args()
    wanted = [word for word in options.only.split(",") if word] or list(ROWS)
    rows = [row for row in ROWS if row in wanted or row.split("-")[0] in wanted]
    strange = [word for word in wanted if word not in ROWS and word not in ("hand-offs", "postgres")]
    if strange:
        parser.error(f"no row {strange[0]}; there are {', '.join(ROWS)}, and hand-offs and postgres for all of these")
    if options.instructions:
        rows = [row for row in rows if row in BY_INSTRUCTIONS]
    elif not options.only:
        rows = [row for row in rows if row not in ON_REQUEST]
    rounds = options.rounds or (1 if options.instructions else 2 if options.quick else 7)
    scale = short_turns(Scale(options.quick))
    builds = [os.path.abspath(options.build), os.path.abspath(options.other)]
    servers = Servers(builds[0], options.instructions)
    try:
        print(f"| median of up to {rounds} rounds [least – most] | this tree | {options.name} | this ÷ {options.name} |")
        print("| --- | --- | --- | --- |")
        for row in rows:
            try:
                found = rounds_of(servers, scale, row, builds, rounds)
            except Stuck as trouble:
                print(f"bench/against: {row}: {trouble}", file=sys.stderr)
                continue
            for name, pairs in found.items():
                ours, theirs = zip(*pairs)
                print(f"| {name} | {shown(ours)} | {shown(theirs)} | **{shown(ratios(pairs))}** |", flush=True)
    finally:
        servers.stop()


if __name__ == "__main__":
    main()
