"""The libraries: how each adaptor is started, on which store, and with which settings."""

import os
from dataclasses import dataclass, field

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@dataclass(frozen=True)
class Settings:
    name: str  # `defaults` or `best`
    says: str  # what differs from the library's defaults, for the table
    lease: "float | None"  # seconds until a dead holder's lock is free; None: no such time
    environment: "dict[str, str]" = field(default_factory=dict)


@dataclass(frozen=True)
class Library:
    name: str
    store: str  # redis, postgres, zookeeper, files
    program: "tuple[str, ...]"  # {build} and {here} are replaced
    settings: "tuple[Settings, ...]"
    is_fair: bool = False  # it promises an order
    hears: bool = False  # its waiters are woken by messages
    shows_names: bool = True  # a lock's name is in what the client sends

    def command(self, build):
        return [part.format(build=build, here=HERE) for part in self.program]

    def address(self, server, port):
        return {
            "redis": f"redis://127.0.0.1:{port}",
            "postgres": f"postgres://torture@127.0.0.1:{port}/postgres?sslmode=disable",
            "zookeeper": f"127.0.0.1:{port}",
            "files": server.folder,
        }[self.store]


def rust(library):
    return ("{build}/debug/fairlock-torture", library)


def python(file):
    return ("{build}/venv/bin/python", "{here}/adaptors/python/" + file)


def java(program, *words):
    return ("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", "{build}/java/adaptors:{build}/java/lib/*", program, *words)


def both(defaults_lease, says, environment, lease=3.0, defaults=None):
    """`defaults`: what the library has no default for."""
    return (Settings("defaults", "TTL 10 s, as in its examples" if defaults else "", defaults_lease, defaults or {}), Settings("best", says, lease, environment))


SHORT = {"LEASE_MS": "3000"}

LIBRARIES = [
    Library("fairlock, Redis", "redis", rust("fairlock"), is_fair=True, hears=True,
            settings=both(30, "`durable`, trust 3 s, lease 3 s, place TTL 3 s",
                          {**SHORT, "TRUST_MS": "3000", "PLACE_TTL_MS": "3000"})),
    Library("fairlock, PostgreSQL", "postgres", rust("fairlock"), is_fair=True, hears=True,
            settings=both(30, "lease 3 s, place TTL 3 s", {**SHORT, "PLACE_TTL_MS": "3000"})),
    Library("fairlock, files", "files", rust("fairlock"), is_fair=True,
            settings=both(30, "lease 3 s, place TTL 3 s", {**SHORT, "PLACE_TTL_MS": "3000"})),
    Library("Redisson, fair", "redis", java("RedissonAdaptor", "fair"), is_fair=True, hears=True,
            settings=both(30, "watchdog 3 s, response time-out 1 s, fairLockWaitTimeout 5 s",
                          {**SHORT, "RESPONSE_MS": "1000", "WAITER_MS": "5000"})),
    Library("Redisson, plain", "redis", java("RedissonAdaptor", "plain"), hears=True,
            settings=both(30, "watchdog 3 s, response time-out 1 s", {**SHORT, "RESPONSE_MS": "1000"})),
    Library("Curator", "zookeeper", java("CuratorAdaptor"), is_fair=True,
            settings=both(60, "session 3 s, a listener that ends the hold at SUSPENDED", {**SHORT, "LISTENS": "true"})),
    Library("redis-py", "redis", python("redis_py.py"), settings=both(None, "timeout 3 s", SHORT)),
    Library("python-redis-lock", "redis", python("python_redis_lock.py"),
            settings=both(None, "expire 3 s, auto_renewal", {**SHORT, "RENEWS": "true"})),
    Library("redsync", "redis", ("{build}/redsync",), settings=both(8, "expiry 3 s, 1000 tries", {**SHORT, "TRIES": "1000"})),
    Library("rslock", "redis", rust("rslock"),
            settings=both(10, "TTL 3 s, the holder asks `is_freed`", {**SHORT, "ASKS": "true"}, defaults={"LEASE_MS": "10000"})),
    Library("redisson (crate)", "redis", rust("redisson"), is_fair=True, settings=both(30, "lease 3 s", SHORT)),
    Library("distkit", "redis", rust("distkit"), settings=both(30, "TTL 3 s", SHORT)),
    Library("async-redis-lock", "redis", rust("async-redis-lock"),
            settings=both(3, "no time-out, retry 20 ms", {"PATIENT": "true"})),
    Library("sqlx advisory lock", "postgres", rust("sqlx"), shows_names=False,
            settings=both(None, "the holder asks its session", {"ASKS": "true"}, lease=None)),
]


def offers(library, fault):
    """None if this fault can hit this library, or the reason why it can't."""
    if fault.needs and library.store == "files":
        return "not played, since there is no server"
    if fault.needs == "messages" and not library.hears:
        return "not played, since no message is sent: waiters poll, or the connection itself tells them"
    if fault.needs == "forgets" and library.store != "redis":
        return "not played, since the server keeps its data on disk"
    return None
