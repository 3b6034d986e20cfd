"""Writes RESULTS.md from results.json, which is in the same folder, and the table of a README: `report.py FOLDER [README]`."""

import json
import re
import sys

from faults import FAULTS
from ledger import LATE, TRIES
from libraries import LIBRARIES
from reasons import REASONS

# What a hand-over takes at most where nothing is wrong; shorter times are not worth a word.
USUAL = 1.0


def worst(rows, name):
    return max((row[name] for row in rows), default=0)


def counts(row):
    """The judge did not fail in this scene, and was not late."""
    return "failed" not in row and row["late"] <= LATE


def cell(rows, is_fair):
    """The worst of all rounds, and what only some rounds showed is marked with `~`."""
    if not rows:
        return ""
    rows, sort = [row for row in rows if counts(row)], "failed" if "failed" in rows[0] else "was late"
    if not rows:
        return f"the judge {sort}"
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


def lateness(rows, again):
    """What the machine did, and no library."""
    late = sum("failed" not in row and not counts(row) for row in rows)
    if not again:
        return f"The judge was never late by more than {LATE} s."
    words = f"The judge was late by more than {LATE} s, or failed, {again} times, and played those scenes again; "
    return words + (f"it was late {TRIES} times in {late} scenes, which count for nothing." if late else "none is missing.")


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


class Results:
    def __init__(self, file):
        self.all = json.load(file)
        self.rows = self.all["rows"]

    def of(self, library, settings, fault=None):
        return [row for row in self.rows if (row["library"], row["settings"]) == (library.name, settings.name) and fault in (None, row["fault"])]

    def hits(self, library, settings):
        """A function from a count's name to the number of faults in which it was not zero; and the number of faults."""
        mine = [row for row in self.of(library, settings) if counts(row)]
        return lambda name: len({row["fault"] for row in mine if row[name]}), len({row["fault"] for row in mine})


README = {"fairlock, Redis": "fairlock on Redis", "fairlock, PostgreSQL": "fairlock on PostgreSQL", "Redisson, fair": "Redisson's fair lock", "redis-py": "redis-py",
          "rslock": "rslock"}


def write_readme(path, results):
    """Replaces the table's rows below its head. In each cell: with the defaults / with the best settings."""
    lines = []
    for library in LIBRARIES:
        if library.name in README:
            hits = [results.hits(library, settings) for settings in library.settings]
            cells = [" / ".join(str(of(name)) for of, _ in hits) for name in ("overlaps", "untold", "hangs")]
            lines.append(f"| {README[library.name]} | {max(faults for _, faults in hits)} | {' | '.join(cells)} |\n")
    with open(path) as file:
        text = file.read()
    head = re.compile(r"(\| lock \| faults \| two clients held it .*\n\| --- .*\n)((?:\|.*\n)*)")
    with open(path, "w") as file:
        file.write(head.sub(lambda found: found[1] + "".join(lines), text))


def main(folder, readme=None):
    with open(f"{folder}/results.json") as file:
        results = Results(file)
    if readme:
        write_readme(readme, results)
    result, rows = results.all, results.rows
    machine = result["machine"]
    reason_of = {(entry["library"], entry["fault"]): entry["why"] for entry in result["not measured"]}
    here = [library for library in LIBRARIES if any(row["library"] == library.name for row in rows)]

    out = [f"""# What locks do under faults

Written by `torture/run` on {machine['date']}, from commit `{machine['commit']}`; don't edit it. {machine['redis']}, {machine['cores']} cores,
Linux {machine['kernel']}; each scene {result['rounds']} {'time' if result['rounds'] == 1 else 'times'}, {result['seconds'] / 60:.0f} minutes. {lateness(rows, result['played again'])}
[README.md](README.md) says what each fault does, and how the judge counts.

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
            mine = [row for row in results.of(library, settings) if counts(row)]
            if mine:
                hits, faults = results.hits(library, settings)
                lines.append([library.name, settings.says or "defaults", str(faults), *(str(hits(name)) for name in ("overlaps", "untold", "hangs")),
                              f"{worst(mine, 'idle_seconds'):.0f} s", str(hits("overtakings")) if library.is_fair else "no order promised"])
    out.append("In how many of the scenes:\n\n" + table(head, lines))

    for library in here:
        out.append(f"## {library.name}\n")
        head = ["fault"] + [": ".join(filter(None, (settings.name, settings.says))) for settings in library.settings]
        lines, unmeasured = [], {}
        for fault in FAULTS:
            if why := reason_of.get((library.name, fault.name)):
                unmeasured.setdefault(why, []).append(fault.name)
                continue
            cells = [cell(results.of(library, settings, fault.name), library.is_fair) for settings in library.settings]
            if any(cells):
                lines.append([f"{fault.name}: {fault.what}", *cells])
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
    main(*sys.argv[1:])
