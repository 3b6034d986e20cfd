"""python-redis-lock's `Lock`."""

import redis
import redis_lock

from words import host_and_port, run, seconds, setting


class PythonRedisLock:
    def __init__(self):
        self.client = redis.Redis(*host_and_port())
        self.client.ping()

    def new(self, name):
        expire = seconds("LEASE_MS")
        return redis_lock.Lock(self.client, name, expire=expire and int(expire), auto_renewal=setting("RENEWS") == "true")

    def lock(self, name, limit):
        self.held = self.new(name)
        return "granted" if self.held.acquire(timeout=limit and max(1, int(limit + 0.5))) else "timeout"

    def attempt(self, name):
        self.held = self.new(name)
        return "granted" if self.held.acquire(blocking=False) else "busy"

    def is_held(self):
        return "yes" if self.held.get_owner_id() == self.held.id else "no"

    def unlock(self):
        try:
            self.held.release()
        except redis_lock.NotAcquired:
            return "lost"
        return "ok"


run(PythonRedisLock())
