"""Plays each fault on each library, many scenes at a time since they mostly wait, and writes down what it counted: torture/run calls this.

    main.py BUILD --out FILE [--only NAME,…] [--faults NAME,…] [--settings defaults|best] [--rounds N] [--jobs N] [--clock LIBRARY SERVER]
"""

import argparse
import dataclasses
import datetime
import json
import multiprocessing
import os
import platform
import queue
import shutil
import subprocess
import sys
import time
import traceback

import libraries
from faults import FAULTS
from scene import Scene
from stores import Files, Postgres, Redis, ZooKeeper, postgres_programs


@dataclasses.dataclass
class Machine:
    build: str
    clock: "tuple[str, str] | None"
    postgres_template: "str | None"

    def server(self, library, fault):
        if library.store == "redis":
            return Redis(self.build, self.clock if fault.needs == "clock" else None)
        if library.store == "postgres":
            Postgres.template = self.postgres_template
            return Postgres(self.build)
        return {"zookeeper": ZooKeeper, "files": Files}[library.store](self.build)


def play(machine, library, settings, fault, turn):
    """One scene, in a process of its own. Returns its row."""
    row = {"library": library.name, "settings": settings.name, "fault": fault.name, "round": turn}
    server = None
    try:
        server = machine.server(library, fault)
        scene = Scene(library, settings, server, machine.build, f"torture:{fault.name}-{turn}")
        try:
            fault.play(scene)
        finally:
            counts = scene.end()
        row.update(dataclasses.asdict(counts), notes=scene.notes)
    except (Exception, SystemExit) as failure:  # the judge's own trouble is not the library's: the cell says that it failed
        row.update(failed=f"{type(failure).__name__}: {failure}", trace=traceback.format_exc())
    finally:
        if server:
            server.stop()
    return row


def missing(build, library):
    """What this library needs and this machine has not, or None."""
    program = library.command(build)[0]
    if not shutil.which(program):
        return f"{os.path.basename(program)} is missing"
    if program == "java" and not os.path.isdir(f"{build}/java/adaptors"):
        return "its jars are missing"
    if library.store == "postgres" and not postgres_programs():
        return "PostgreSQL is missing"
    if library.store == "redis" and not shutil.which("redis-server"):
        return "redis-server is missing"
    return None


def seconds_of(settings, fault):
    """About how long a scene takes: the longest begin first."""
    past = {"stall", "stopped", "silent", "kill-holder", "reply-lost"}
    return (settings.lease or 20) * (fault.name in past) + 25 * (fault.name == "silent")


def said(*command):
    return (subprocess.run(command, capture_output=True, text=True).stdout.strip().splitlines() or ["?"])[0]


def machine_of():
    return {"date": datetime.date.today().isoformat(), "cores": os.cpu_count(), "load": round(os.getloadavg()[2]), "kernel": platform.release(),
            "redis": said("redis-server", "--version").split(" sha=")[0], "commit": said("git", "rev-parse", "--short", "HEAD")}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", default="", help="libraries whose name contains one of these")
    parser.add_argument("--faults", default="")
    parser.add_argument("--settings", default="")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=6 * (os.cpu_count() or 1), help="scenes at a time; a third of them on JVMs, which are slow to start")
    parser.add_argument("--clock", nargs=2, help="libfaketime, and a redis-server that starts under it")
    options = parser.parse_args()
    build = os.path.abspath(options.build)

    wanted = [word.strip().lower() for word in options.only.split(",") if word.strip()]
    chosen = [library for library in libraries.LIBRARIES if not wanted or any(word in library.name.lower() for word in wanted)]
    left_out = {library.name: why for library in chosen if (why := missing(build, library))}
    for name, why in left_out.items():
        print(f"torture/run: leaves out {name}: {why}", file=sys.stderr)
    chosen = [library for library in chosen if library.name not in left_out]
    faults = [fault for fault in FAULTS if not options.faults or fault.name in options.faults.split(",")]

    template = Postgres.prepare() if any(library.store == "postgres" for library in chosen) else None
    machine = Machine(build, tuple(options.clock) if options.clock else None, template)
    scenes, not_measured = [], []
    for library in chosen:
        for fault in faults:
            why = libraries.offers(library, fault, machine)
            if why:
                not_measured.append({"library": library.name, "fault": fault.name, "why": why})
                continue
            scenes += [(library, settings, fault, turn) for settings in library.settings for turn in range(options.rounds)
                       if not options.settings or settings.name == options.settings]
    scenes.sort(key=lambda scene: -seconds_of(*scene[1:3]))

    started, rows = time.monotonic(), []

    def write():
        result = {"machine": machine_of(), "rounds": options.rounds, "seconds": round(time.monotonic() - started), "rows": rows,
                  "not measured": not_measured, "left out": left_out}
        with open(options.out, "w") as file:
            json.dump(result, file, indent=0, ensure_ascii=False)

    jvms = max(1, options.jobs // 3)
    played: "queue.Queue[dict]" = queue.Queue()
    try:
        with multiprocessing.Pool(jvms) as slow, multiprocessing.Pool(max(1, options.jobs - jvms)) as quick:
            for scene in scenes:
                pool = slow if scene[0].program[0] == "java" else quick
                pool.apply_async(play, (machine, *scene), callback=played.put, error_callback=played.put)
            for number in range(1, len(scenes) + 1):
                row = played.get()
                if isinstance(row, BaseException):
                    raise row
                rows.append(row)
                print(f"{number}/{len(scenes)} {time.monotonic() - started:.0f} s  {summary(row)}", flush=True)
    finally:
        write()  # an interrupted run keeps what it has
        if template:
            shutil.rmtree(template, ignore_errors=True)


def summary(row):
    if "failed" in row:
        return f"{row['library']}, {row['settings']}, {row['fault']}: FAILED {row['failed']}"
    found = {name: round(row[name], 1) for name in ("overlaps", "overlap_seconds", "untold", "idle_seconds", "overtakings", "hangs") if row[name]}
    return f"{row['library']}, {row['settings']}, {row['fault']}: {found} {row['notes'] if row['notes'] else ''}"


if __name__ == "__main__":
    main()
