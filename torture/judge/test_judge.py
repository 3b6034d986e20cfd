"""The judge finds what is planted, and nothing in a library that is right. No server is needed: `python3 torture/judge/test_judge.py`."""

import concurrent.futures
import contextlib
import os
import sys
import time
import unittest
from dataclasses import asdict

import scene as scenes
from faults import FAULTS
from ledger import LATE, Counts, Ledger
from libraries import HERE, Library, Settings
from report import cell
from stores import Files

SETTINGS = Settings("planted", "", 1.0)


@contextlib.contextmanager
def scene_of(kind):
    """A scene with the library of this kind."""
    library = Library(kind, "files", (sys.executable, f"{HERE}/adaptors/python/planted.py", kind), (SETTINGS,))
    server = Files()
    try:
        yield scenes.Scene(library, SETTINGS, server, "", f"planted:{kind}")
    finally:
        server.stop()


def judge(kind, fault):
    """The counts of one scene."""
    with scene_of(kind) as scene:
        next(one for one in FAULTS if one.name == fault).play(scene)
        return scene.end()


class Planted(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scenes.BOUND = 3.0  # seconds that an answer may take
        wanted = [("right", "stall"), ("right", "stopped"), ("right", "kill-holder"), ("right", "kill-waiter"), ("overlaps", "stall"),
                  ("loses-silently", "stall"), ("loses-silently", "stopped"), ("hangs", "kill-waiter"), ("idles", "kill-holder"),
                  ("overtakes", "stall")]
        with concurrent.futures.ThreadPoolExecutor(len(wanted)) as pool:
            cls.counts = dict(zip(wanted, pool.map(lambda one: judge(*one), wanted)))

    def test_nothing_is_found_in_a_right_library(self):
        for (kind, fault), counts in self.counts.items():
            if kind == "right":
                self.assertLess(counts.idle_seconds, 2, fault)
                self.assertEqual(Counts(), Counts(**{**asdict(counts), "idle_seconds": 0.0}), fault)

    def test_an_overlap_is_found_and_is_no_untold_loss(self):
        counts = self.counts["overlaps", "stall"]
        self.assertGreater(counts.overlaps, 0)
        self.assertGreater(counts.overlap_seconds, 1)
        self.assertEqual(counts.untold, 0)

    def test_a_silent_loss_is_found(self):
        for fault in ("stall", "stopped"):
            self.assertGreater(self.counts["loses-silently", fault].untold, 0, fault)

    def test_a_call_without_an_answer_is_found(self):
        self.assertGreater(self.counts["hangs", "kill-waiter"].hangs, 0)

    def test_seconds_in_which_nobody_had_the_lock_are_found(self):
        self.assertGreater(self.counts["idles", "kill-holder"].idle_seconds, 3.5)

    def test_an_overtaking_is_found(self):
        self.assertGreater(self.counts["overtakes", "stall"].overtakings, 0)


class Late(unittest.TestCase):
    def test_a_judge_that_comes_late_is_no_librarys_fault(self):
        with scene_of("right") as scene:
            scene.until(lambda: time.sleep(2 * LATE), 0.01)
            self.assertGreater(scene.late, LATE)
        row = {**asdict(Counts(overlaps=1)), "late": scene.late}
        self.assertEqual(cell([row], True), "the judge was late")
        self.assertNotEqual(cell([{**row, "late": 0.0}], True), "the judge was late")


class Rules(unittest.TestCase):
    """The ledger, with times by hand."""

    def setUp(self):
        self.ledger = Ledger()

    def held_twice(self, told_after):
        self.ledger.granted("A", 0)
        self.ledger.granted("B", 1)
        self.ledger.told("A", 1 + told_after)
        return self.ledger.counts(2)

    def test_a_loss_told_within_the_resolution_is_no_overlap(self):
        self.assertEqual(self.held_twice(0.1), Counts())

    def test_a_loss_told_later_is_an_overlap(self):
        counts = self.held_twice(0.5)
        self.assertEqual((counts.overlaps, counts.overlap_seconds, counts.untold), (1, 0.5, 0))

    def test_a_yes_beside_another_holder_counts_however_short(self):
        self.ledger.granted("A", 0)
        self.ledger.granted("B", 1)
        self.ledger.said_yes("A", 1.01)
        self.ledger.told("A", 1.05)
        counts = self.ledger.counts(2)
        self.assertEqual((counts.overlaps, counts.untold), (1, 1))

    def test_a_question_sent_before_the_grant_proves_nothing(self):
        self.ledger.granted("A", 0)
        self.ledger.said_yes("A", 0.99)
        self.ledger.granted("B", 1)
        self.ledger.told("A", 1.05)
        self.assertEqual(self.ledger.counts(2), Counts())

    def test_an_unlock_that_says_ok_after_another_was_granted_is_untold(self):
        for said, untold in (("ok", 1), ("lost", 0)):
            ledger = self.ledger = Ledger()
            ledger.granted("A", 0)
            ledger.granted("B", 1)
            ledger.unlock_sent("B", 2)
            ledger.unlock_sent("A", 3)
            ledger.unlock_said("A", said)
            self.assertEqual((ledger.counts(4).overlaps, ledger.counts(4).untold), (1, untold))

    def test_a_stopped_holder_overlaps_with_nobody(self):
        self.ledger.granted("A", 0)
        self.ledger.stopped("A", 1)
        self.ledger.granted("B", 2)
        self.ledger.continued("A", 9)
        self.ledger.told("A", 9.1)
        self.assertEqual(self.ledger.counts(10).overlaps, 0)

    def test_a_dead_holder_holds_nothing_and_a_dead_waiter_is_not_overtaken(self):
        self.ledger.granted("A", 0)
        self.ledger.asked("B", 1)
        self.ledger.asked("C", 2)
        self.ledger.fault = 3
        self.ledger.died("A", 3)
        self.ledger.died("B", 4)
        self.ledger.granted("C", 5)
        counts = self.ledger.counts(6)
        self.assertEqual((counts.overlaps, counts.idle_seconds, counts.overtakings), (0, 2, 0))

    def test_a_later_request_that_is_granted_first_is_an_overtaking(self):
        for spaced, overtakings in ((0.05, 0), (0.5, 1)):
            ledger = Ledger()
            ledger.asked("B", 1)
            ledger.asked("C", 1 + spaced)
            ledger.granted("C", 2)
            ledger.unlock_sent("C", 3)
            ledger.granted("B", 4)
            self.assertEqual(ledger.counts(5).overtakings, overtakings)


if __name__ == "__main__":
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    unittest.main(warnings="ignore")
