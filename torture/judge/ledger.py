"""What the judge saw of one lock, and what it counts from that. Pure: no process, no clock of its own.

A client *believes* that it holds the lock from the moment when the judge read `granted` until the moment when the judge sent `unlock`,
was told of the loss, or killed the client. So the judge's view of a hold lies inside the library's view of it, and two holds that
overlap here overlapped in truth.
"""

from dataclasses import dataclass, field

# The judge asks each holder every 0.05 s, and a told loss ends a belief at that answer: on a busy machine a shorter overlap may be the judge's delay.
RESOLUTION = 0.3
# A judge that comes later than this counts what the machine did, and no library: the scene is played again, so many times in all.
LATE, TRIES = RESOLUTION / 2, 3
# Two requests that were sent in this time have no order.
ORDER = 0.1


@dataclass
class Hold:
    client: str
    start: float
    end: "float | None" = None
    told: bool = False  # the belief ended since the library said so
    asked_yes: "list[float]" = field(default_factory=list)  # when questions were sent that it answered with `yes`
    unlock_sent: "float | None" = None
    unlock_said: "str | None" = None


@dataclass
class Wait:
    client: str
    asked: float
    granted: "float | None" = None
    left: "float | None" = None  # gave up, or died


@dataclass
class Counts:
    overlaps: int = 0
    overlap_seconds: float = 0.0
    untold: int = 0
    idle_seconds: float = 0.0
    overtakings: int = 0
    hangs: int = 0


class Ledger:
    def __init__(self):
        self.holds: "list[Hold]" = []
        self.waits: "list[Wait]" = []
        self.pauses: "dict[str, list[list[float]]]" = {}  # client → [stopped, continued]
        self.hung: "list[str]" = []
        self.fault: "float | None" = None

    def hold_of(self, client) -> "Hold | None":
        return next((hold for hold in reversed(self.holds) if hold.client == client and hold.end is None), None)

    def wait_of(self, client) -> "Wait | None":
        return next((wait for wait in self.waits if wait.client == client and wait.granted is None and wait.left is None), None)

    # what happened, in the order of time

    def asked(self, client, at):
        if not self.wait_of(client):
            self.waits.append(Wait(client, at))

    def gave_up(self, client, at):
        if wait := self.wait_of(client):
            wait.left = at

    def granted(self, client, at):
        if wait := self.wait_of(client):
            wait.granted = at
        self.holds.append(Hold(client, at))

    def said_yes(self, client, asked_at):
        if hold := self.hold_of(client):
            hold.asked_yes.append(asked_at)

    def told(self, client, at):
        """The library said that the hold is lost, or that it can't say."""
        if hold := self.hold_of(client):
            hold.end, hold.told = at, True

    def unlock_sent(self, client, at):
        if hold := self.hold_of(client):
            hold.end = hold.unlock_sent = at

    def unlock_said(self, client, answer):
        hold = next((hold for hold in reversed(self.holds) if hold.client == client), None)
        if hold and hold.unlock_sent is not None:
            hold.unlock_said = hold.unlock_said or answer

    def stopped(self, client, at):
        self.pauses.setdefault(client, []).append([at, float("inf")])

    def continued(self, client, at):
        self.pauses[client][-1][1] = at

    def died(self, client, at):
        if hold := self.hold_of(client):
            hold.end = at
        self.gave_up(client, at)

    def hangs(self, client, word):
        self.hung.append(f"{client}: {word}")

    # what that amounts to

    def counts(self, now) -> Counts:
        found = Counts(hangs=len(self.hung), idle_seconds=self._idle(now))
        for hold in self.holds:
            later = [other for other in self.holds if other.client != hold.client and hold.start < other.start < (hold.end or now)]
            for other in later:
                seconds = self._overlap(hold, other, now)
                is_witnessed = any(other.start < asked < (other.end or now) for asked in hold.asked_yes)
                if seconds > RESOLUTION or is_witnessed:
                    found.overlaps += 1
                    found.overlap_seconds += seconds
            found.untold += any(self._is_untold(hold, other, now) for other in later)
        found.overtakings = sum(self._overtook(first, second) for first in self.waits for second in self.waits)
        return found

    def _overlap(self, hold, other, now):
        """Seconds in which both believed, and neither was stopped: a stopped program does nothing under its lock."""
        start, end = max(hold.start, other.start), min(hold.end or now, other.end or now)
        return measure((start, end), [pause for client in (hold.client, other.client) for pause in self.pauses.get(client, [])])

    def _is_untold(self, hold, other, now):
        """`other` was granted within `hold`, and the library still said that all was well."""
        return any(other.start < asked < (other.end or now) for asked in hold.asked_yes) or hold.unlock_said == "ok"

    def _idle(self, now):
        """Seconds after the fault in which somebody waited and nobody held."""
        if self.fault is None:
            return 0.0
        holds = [(hold.start, hold.end or now) for hold in self.holds]
        edges = sorted({self.fault, now, *(t for span in holds for t in span if t > self.fault),
                        *(t for wait in self.waits for t in (wait.asked, wait.granted or wait.left or now) if t > self.fault)})
        idle = 0.0
        for start, end in zip(edges, edges[1:]):
            middle = (start + end) / 2
            is_wanted = any(wait.asked < middle < (wait.granted or wait.left or now) for wait in self.waits)
            if is_wanted and not any(a < middle < b for a, b in holds):
                idle += end - start
        return idle

    def _overtook(self, first, second):
        """`second` asked later than `first`, which was waiting all the time, and was granted earlier."""
        if second.granted is None or first.client == second.client or first.asked + ORDER > second.asked:
            return False
        if any(start <= second.granted and end >= second.asked for start, end in self.pauses.get(first.client, [])):
            return False
        return second.granted < (first.granted or first.left or float("inf"))


def measure(span, without):
    """The length of a span without the parts of it that others cover."""
    (start, end), covered = span, 0.0
    at = start
    for a, b in sorted(map(tuple, without)):
        a, b = max(a, at), min(b, end)
        if b > a:
            covered, at = covered + b - a, b
    return max(0.0, end - start - covered)
