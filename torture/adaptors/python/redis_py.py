"""redis-py's `Lock`."""

import redis
from redis.exceptions import LockNotOwnedError

from words import host_and_port, run, seconds


class RedisPy:
    def __init__(self):
        self.client = redis.Redis(*host_and_port())
        self.client.ping()

    def lock(self, name, limit):
        self.held = self.client.lock(name, timeout=seconds("LEASE_MS"))
        return "granted" if self.held.acquire(blocking_timeout=limit) else "timeout"

    def attempt(self, name):
        self.held = self.client.lock(name, timeout=seconds("LEASE_MS"))
        return "granted" if self.held.acquire(blocking=False) else "busy"

    def is_held(self):
        return "yes" if self.held.owned() else "no"

    def unlock(self):
        try:
            self.held.release()
        except LockNotOwnedError:
            return "lost"
        return "ok"


run(RedisPy())
