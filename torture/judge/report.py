"""Writes RESULTS.md from results.json, which is in the same folder: `report.py FOLDER`."""

import json
import sys

from faults import FAULTS
from libraries import LIBRARIES
from reasons import REASONS

# What a hand-over takes at most where nothing is wrong; shorter times are not worth a word.
USUAL = 1.0


def worst(rows, name):
    return max((row[name] for row in rows if "failed" not in row), default=0)


def cell(rows, is_fair):
    """The worst of all rounds, and what only some rounds showed is marked with `~`."""
    if not rows:
        return ""
    if all("failed" in row for row in rows):
        return "the judge failed"
    rows = [row for row in rows if "failed" not in row]
    words = []

    def add(text, shows):
        if any(map(shows, rows)):
            words.append(("" if all(map(shows, rows)) else "~") + text)

    add(f"**two held {worst(rows, 'overlap_seconds'):.1f} s**", lambda row: row["overlaps"])
    add("**untold**", lambda row: row["untold"])
    add("**hung**", lambda row: row["hangs"])
    add(f"nobody {worst(rows, 'idle_seconds'):.0f} s", lambda row: row["idle_seconds"] > USUAL)
    if is_fair:
        add("overtaken", lambda row: row["overtakings"])
    return ", ".join(words) or "✓"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def main(folder):
    with open(f"{folder}/results.json") as file:
        result = json.load(file)
    rows, machine = result["rows"], result["machine"]
    reason_of = {(entry["library"], entry["fault"]): entry["why"] for entry in result["not measured"]}
    here = [library for library in LIBRARIES if any(row["library"] == library.name for row in rows)]

    def of(library, settings=None, fault=None):
        return [row for row in rows if row["library"] == library.name and settings in (None, row["settings"]) and fault in (None, row["fault"])]

    out = [f"""# What locks do under faults

Written by `torture/run` on {machine['date']}, from commit `{machine['commit']}`; don't edit it. {machine['redis']}, {machine['cores']} cores
with a load average of {machine['load']}, Linux {machine['kernel']}; each scene {result['rounds']} times, {result['seconds'] / 60:.0f} minutes. [README.md](README.md) says what each fault does, and how the judge counts.

- **two held**: two clients believed at the same time that they hold the lock, for so long in total;
- **untold**: a library still said that all was well when another client already had the lock;
- **hung**: a call, or a wait for a lock that no living client held, had no answer within its bound;
- nobody: for so many seconds somebody waited and nobody had the lock; up to {USUAL:.0f} s is not shown;
- overtaken, where a library promises an order: a later request was granted first;
- ✓: none of these. `~`: in some rounds only. The figures are those of the worst round.

## All faults together
"""]
    head = ["library", "settings", "scenes", "two held", "untold", "hung", "nobody, longest", "overtaken"]
    lines = []
    for library in here:
        for settings in library.settings:
            mine = [row for row in of(library, settings.name) if "failed" not in row]
            if mine:
                faults = {row["fault"] for row in mine}

                def hit(name):
                    return str(sum(any(row[name] for row in mine if row["fault"] == fault) for fault in faults))
                lines.append([library.name, settings.says or "defaults", str(len(faults)), hit("overlaps"), hit("untold"), hit("hangs"),
                              f"{worst(mine, 'idle_seconds'):.0f} s", hit("overtakings") if library.is_fair else "no order promised"])
    out.append("In how many of the scenes:\n\n" + table(head, lines))

    for library in here:
        out.append(f"## {library.name}\n")
        head = ["fault"] + [": ".join(filter(None, (settings.name, settings.says))) for settings in library.settings]
        lines, unmeasured = [], {}
        for fault in FAULTS:
            if why := reason_of.get((library.name, fault.name)):
                unmeasured.setdefault(why, []).append(fault.name)
                continue
            cells = [cell(of(library, settings.name, fault.name), library.is_fair) for settings in library.settings]
            if any(cells):
                lines.append([fault.what, *cells])
        out.append(table(head, lines))
        notes = [f"- {why}" for why in REASONS.get(library.name, [])]
        notes += [f"- {', '.join(names)}: {why}" for why, names in unmeasured.items()]
        if notes:
            out.append("\n".join(notes) + "\n")
    for name, why in result["left out"].items():
        out.append(f"{name} is left out: {why}.\n")
    failed = [row for row in rows if "failed" in row]
    if failed:
        out.append("## Scenes in which the judge failed\n")
        out += [f"- {row['library']}, {row['settings']}, {row['fault']}: {row['failed']}" for row in failed]
    with open(f"{folder}/RESULTS.md", "w") as file:
        file.write("\n".join(out).rstrip() + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
