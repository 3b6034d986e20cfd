"""The faults: each is a scene with a holder A and waiters B and C. torture/README.md says in a line what each one does."""

from dataclasses import dataclass
from typing import Callable

SHORT = 0.5  # seconds that B and C hold where it does not matter


def past(scene):
    """Longer than a lease; where there is none, long enough to notice."""
    return scene.lease + 2 if scene.lease else 4


def renewal(scene):
    """By then each library that renews has renewed."""
    return scene.lease / 3 + 2 if scene.lease else 3


def patience(scene):
    """Who lives and waits has to be served in this time."""
    return scene.lease + 20 if scene.lease else 20


def queue_up(scene, hold=SHORT):
    """A holds, B waits, and C behind B; B, once granted, holds for so long."""
    a, b, c = scene.start("A", "B", "C")
    scene.lock(a)
    scene.granted(a, patience(scene))
    scene.wait_in_line(b, hold)
    scene.wait_in_line(c, SHORT)
    return a, b, c


def let_go(scene, *clients):
    """Who holds releases now, and who is still to be granted after a moment."""
    for client in clients:
        client.hold, client.is_free = SHORT, True
        if client.holds:
            scene.unlock(client)


def stall(scene):
    a, b, c = queue_up(scene, hold=float("inf"))
    scene.stall(a, past(scene))
    scene.fault()
    scene.until(lambda: a.pending is None, past(scene) + 20)
    scene.wait(SHORT)  # A is asked
    let_go(scene, a, b)
    scene.served([a, b, c], patience(scene))


def cancelled(scene):
    a, b = scene.start("A", "B")
    warm_up(scene, a)
    scene.proxy.be_silent({"A"})
    scene.lock_for(a, 300)
    scene.until(lambda: a.pending is None, 1.0)
    scene.proxy.speak()
    scene.wait(0.3)  # the request arrives
    scene.fault()
    scene.lock(b, SHORT)
    scene.served([a, b], patience(scene))


def warm_up(scene, client):
    """Its connections are there, and what it sends once has been sent."""
    scene.lock(client, 0.1)
    scene.served([client], patience(scene))


def silent(scene):
    """Only for A and C: B can take over."""
    a, b, c = scene.start("A", "B", "C")
    warm_up(scene, c)
    scene.lock(a)
    scene.granted(a, patience(scene))
    scene.wait_in_line(b)
    scene.fault()
    scene.proxy.be_silent({"A", "C"})
    c.say(f"try {scene.name}")
    scene.wait(max(24, past(scene)))  # longer than a call may take
    scene.proxy.speak()
    scene.wait(1)
    let_go(scene, a, b)
    scene.served([a, b, c], patience(scene))


def stopped(scene):
    a, b, c = queue_up(scene, hold=float("inf"))
    scene.stop(a)
    scene.fault()
    scene.wait(past(scene))
    scene.go_on(a)
    scene.wait(1)
    let_go(scene, a, b)
    scene.served([a, b, c], patience(scene))


def clock(scene):
    a, b, c = queue_up(scene, hold=float("inf"))
    scene.fault()
    scene.server.set_clock(int((scene.lease or 60) * 2 + 5))
    scene.until(lambda: not a.holds, renewal(scene))
    let_go(scene, a, b)
    scene.served([a, b, c], patience(scene))


def reply_lost(scene):
    a, b = scene.start("A", "B")
    warm_up(scene, a)
    scene.probes = False  # the lost reply has to be that of the lock, and then that of the release
    scene.fault()
    scene.proxy.loses_reply_of.add("A")
    scene.lock(a, SHORT)
    scene.served([a], patience(scene))
    if a.pending:
        return  # it hangs
    scene.lock(a)
    scene.granted(a, patience(scene))
    scene.wait_in_line(b, SHORT)
    scene.proxy.loses_reply_of.add("A")
    scene.unlock(a)
    scene.served([a, b], patience(scene))
    if len(scene.proxy.lost) < 2:
        scene.notes.append(f"only {len(scene.proxy.lost)} replies were lost")


def failover(scene):
    port = scene.server.attach_replica(scene.proxy.port_for("replica"))
    a, b, c = scene.start("A", "B", "C")
    warm_up(scene, a)
    scene.wait(0.3)  # the replica has all that until now
    scene.proxy.be_silent({"replica"})
    scene.lock(a)
    scene.granted(a, patience(scene))
    scene.wait_in_line(b)
    scene.wait_in_line(c, SHORT)
    scene.fault()
    scene.server.crash()
    scene.proxy.cut({"replica"})
    scene.server.promote(port)
    scene.proxy.target = port
    scene.until(lambda: b.holds or not a.holds, renewal(scene))
    scene.until(lambda: not a.holds, renewal(scene))
    let_go(scene, a, b)
    scene.served([a, b, c], patience(scene))


def cut(scene):
    a, b, c = queue_up(scene)
    scene.fault()
    scene.proxy.cut({"A", "B"})
    scene.wait(1.5)
    let_go(scene, a)
    scene.served([a, b, c], patience(scene))


def kill_holder(scene):
    a, b, c = queue_up(scene)
    scene.fault()
    scene.kill(a)
    scene.served([b, c], patience(scene))


def kill_waiter(scene):
    a, b, c = queue_up(scene)
    scene.fault()
    scene.kill(b)
    scene.wait(SHORT)
    let_go(scene, a)
    scene.served([a, c], patience(scene))


def messages_lost(scene):
    a, b, c = queue_up(scene)
    scene.fault()
    scene.proxy.swallows_pushes = True
    let_go(scene, a)
    scene.served([a, b, c], patience(scene))
    if not scene.proxy.swallowed:
        scene.notes.append("no message was sent")


def restart(scene, forgets=False):
    a, b, c = queue_up(scene, hold=float("inf"))
    scene.fault()
    scene.server.crash()
    if forgets:
        scene.server.forget()
    scene.wait(1)
    scene.server.process = scene.server.start()
    scene.until(lambda: b.holds or not a.holds, renewal(scene))
    scene.until(lambda: not a.holds, renewal(scene))
    let_go(scene, a, b)
    scene.served([a, b, c], patience(scene))


def restart_empty(scene):
    restart(scene, forgets=True)


@dataclass(frozen=True)
class Fault:
    name: str
    what: str
    play: Callable
    needs: str = "proxy"  # of the store or the library; "" for nothing


FAULTS = [
    Fault("stall", "the holder's executor or thread is blocked past the lease", stall, ""),
    Fault("cancelled", "an acquire is given up while its request is on the way", cancelled),
    Fault("silent", "the server is silent for the holder and for one that tries", silent),
    Fault("stopped", "the holder is stopped past the lease (SIGSTOP), and goes on", stopped, ""),
    Fault("clock", "the server's clock is stepped forward by two leases", clock, "clock"),
    Fault("reply-lost", "the reply to a lock is lost, then that to a release", reply_lost),
    Fault("fail-over", "a replica without the holder's lock takes over", failover, "replica"),
    Fault("cut", "the connections of the holder and of the first waiter are cut", cut),
    Fault("kill-holder", "kill -9 of the holder", kill_holder, ""),
    Fault("kill-waiter", "kill -9 of the first waiter", kill_waiter, ""),
    Fault("messages-lost", "what the server pushes is lost", messages_lost, "messages"),
    Fault("restart", "the server crashes and restarts with its data", restart),
    Fault("restart-empty", "the server crashes and restarts without data", restart_empty, "forgets"),
]
