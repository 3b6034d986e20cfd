"""Plays each fault on each library, many scenes at a time since they mostly wait, and writes down what it counted: torture/run calls this.

    main.py BUILD --out FILE [--only NAME,…] [--faults NAME,…] [--settings defaults|best] [--rounds N] [--jobs N]
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
from ledger import LATE, TRIES
from scene import Scene
from stores import Ensemble, Files, Postgres, Redis, ZooKeeper, postgres_programs


@dataclasses.dataclass
class Machine:
    build: str
    postgres_template: "str | None"

    def server(self, library, fault):
        if library.store == "files":
            return Files()
        if library.store == "zookeeper" and fault.needs == "replica":
            return Ensemble(self.build)
        Postgres.template = self.postgres_template
        return {"redis": Redis, "postgres": Postgres, "zookeeper": ZooKeeper}[library.store](self.build, has_clock=fault.needs == "clock")


def share(semaphore):
    """So many scenes start their servers and clients at a time as there are cores: later on they mostly wait."""
    global starting
    starting = semaphore


def play(machine, library, settings, fault, turn, attempt):
    """One scene, in a process of its own. Returns its row."""
    row = {"library": library.name, "settings": settings.name, "fault": fault.name, "round": turn, "attempt": attempt}
    server, began = None, time.monotonic()
    try:
        with starting:
            server = machine.server(library, fault)
        scene = Scene(library, settings, server, machine.build, f"torture:{fault.name}-{turn}", starting)
        try:
            fault.play(scene)
        finally:
            counts = scene.end()
        row.update(dataclasses.asdict(counts), notes=scene.notes, late=round(scene.late, 3))
    except (Exception, SystemExit) as failure:  # the judge's own trouble is not the library's
        row.update(failed=f"{type(failure).__name__}: {failure}", trace=traceback.format_exc())
    finally:
        if server:
            server.stop()
    row["seconds"] = round(time.monotonic() - began, 1)
    row["again"] = attempt < TRIES and ("failed" in row or row["late"] > LATE)
    return row


def missing(build, library):
    """What this library needs and this machine has not, or None."""
    language = {"java": "java", "{build}/redsync": "go", "{build}/venv/bin/python": "python"}.get(library.program[0], "rust")
    if os.path.exists(log := f"{build}/build-{language}.failed"):
        return f"there are no adaptors in {language.capitalize()}, see {log}"
    if library.store == "postgres" and not postgres_programs():
        return "PostgreSQL is missing"
    if library.store == "redis" and not shutil.which("redis-server"):
        return "redis-server is missing"
    return None


def seconds_of(settings, fault):
    """About how long a scene takes: the longest begin first."""
    past = {"stall", "stopped", "silent", "kill-holder", "kill-waiter", "messages-lost", "reply-lost"}
    return (settings.lease or 20) * (fault.name in past) + 25 * (fault.name == "silent")


def said(*command):
    if not shutil.which(command[0]):
        return f"no {command[0]}"
    return (subprocess.run(command, capture_output=True, text=True).stdout.strip().splitlines() or ["?"])[0]


def machine_of():
    return {"date": datetime.date.today().isoformat(), "cores": os.cpu_count(), "kernel": platform.release(),
            "redis": said("redis-server", "--version").split(" sha=")[0], "commit": said("git", "rev-parse", "--short", "HEAD")}


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", default="", help="libraries whose name contains one of these")
    parser.add_argument("--faults", default="")
    parser.add_argument("--settings", default="")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=16 * (os.cpu_count() or 1), help="scenes at a time")
    return parser.parse_args()


def main():
    options = parse()
    build = os.path.abspath(options.build)
    wanted = [word.strip().lower() for word in options.only.split(",") if word.strip()]
    chosen = [library for library in libraries.LIBRARIES if not wanted or any(word in library.name.lower() for word in wanted)]
    left_out = {library.name: why for library in chosen if (why := missing(build, library))}
    for why in dict.fromkeys(left_out.values()):
        print(f"torture/run: leaves out {'; '.join(name for name in left_out if left_out[name] == why)}: {why}", file=sys.stderr)
    chosen = [library for library in chosen if library.name not in left_out]
    faults = [fault for fault in FAULTS if not options.faults or fault.name in options.faults.split(",")]
    template = Postgres.prepare() if any(library.store == "postgres" for library in chosen) else None
    machine = Machine(build, template)

    scenes, not_measured = [], []
    for library in chosen:
        for fault in faults:
            why = libraries.offers(library, fault)
            if why:
                not_measured.append({"library": library.name, "fault": fault.name, "why": why})
                continue
            scenes += [(library, settings, fault, turn) for settings in library.settings for turn in range(options.rounds)
                       if not options.settings or settings.name == options.settings]
    scenes.sort(key=lambda scene: -seconds_of(*scene[1:3]))

    print(f"torture/run: plays {len(scenes)} scenes, {options.jobs} at a time; a line for each when it ends", file=sys.stderr)
    started, rows, late = time.monotonic(), [], []
    try:
        for row in play_all(machine, scenes, options.jobs):
            (late if row["again"] else rows).append(row)
            print(f"{len(rows)}/{len(scenes)} {time.monotonic() - started:.0f} s  {summary(row)}", flush=True)
    finally:  # an interrupted run keeps what it has
        lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)  # one a row, so that a difference can be read
        result = {"machine": machine_of(), "rounds": options.rounds, "seconds": round(time.monotonic() - started), "played again": len(late),
                  "not measured": not_measured, "left out": left_out}
        with open(options.out, "w") as file:
            file.write(f'{json.dumps(result, ensure_ascii=False)[:-1]},\n"rows": [\n{lines}\n]}}\n')
        if template:
            shutil.rmtree(template, ignore_errors=True)


def play_all(machine, scenes, jobs):
    """Yields a row for each scene when it ends. A scene in which the judge failed or was late is played again after the others, three times at most."""
    played: "queue.Queue[dict]" = queue.Queue()
    with multiprocessing.Pool(jobs, share, [multiprocessing.Semaphore(os.cpu_count() or 1)]) as pool:
        def begin(scene, attempt):
            def end(row):
                played.put((scene, row))
            pool.apply_async(play, (machine, *scene, attempt), callback=end, error_callback=end)

        for scene in scenes:
            begin(scene, 1)
        left = len(scenes)
        while left:
            scene, row = played.get()
            if isinstance(row, BaseException):
                raise row
            if row["again"]:
                begin(scene, row["attempt"] + 1)
            else:
                left -= 1
            yield row


def summary(row):
    if "failed" in row:
        return f"{row['library']}, {row['settings']}, {row['fault']}: FAILED {row['failed']}"
    if row["late"] > LATE:
        return f"{row['library']}, {row['settings']}, {row['fault']}: the judge was late by {row['late']:.1f} s"
    found = {name: round(row[name], 1) for name in ("overlaps", "overlap_seconds", "untold", "idle_seconds", "overtakings", "hangs") if row[name]}
    return f"{row['library']}, {row['settings']}, {row['fault']}: {found} {row['notes'] if row['notes'] else ''}"


if __name__ == "__main__":
    main()
