"""Why a library does what the table shows, by its documents or its source: a line for each kind of bad cell."""

FORGOTTEN = "clock, fail-over, restart without data: the server has forgotten the lock and grants it again. {}"
NO_RENEWAL = "stall: nothing renews the lease unless the program calls {}, and a blocked thread does not."
TASK = "stall: the lease is renewed by a task on the program's own executor."
LATE = "stopped: its guard learns of a loss by the next renewal, so the first answers may still be yes."
LEFT = "cancelled, reply-lost, kill-holder: a lock that nobody uses is free when its lease ends."

REASONS = {
    "fairlock, Redis": [
        "clock: leases end sooner by the step, and the older holder learns of it by its next renewal, a third of its lease later: "
        "docs/promises.md says to slew a clock, never to step it. In other runs the best settings had this too, for up to 0.8 s.",
        "docs/promises.md also allows two holders after a fail-over or a restart without data, unless with `durable`: these scenes are too mild to show it.",
        "kill-holder: a dead holder's lease is 30 s by default. restart, with `durable`: after a server's new start nothing is granted for one grace.",
    ],
    "fairlock, PostgreSQL": [
        "kill-holder: a dead holder's lease is 30 s by default.",
    ],
    "Redisson, fair": [
        "silent: `isHeldByCurrentThread` and `unlock` ask the server, and retry it for longer than others wait for the lock.",
        FORGOTTEN.format("A holder finds out when it asks or releases; waiters lose their places."),
        LEFT + " A command that may have changed data is not retried (RedisResponseTimeoutException).",
        "kill-waiter: a dead waiter keeps its place for fairLockWaitTimeout, 5 minutes by default, so the waiter behind it hangs by the judge's bound.",
        "messages-lost: a waiter looks again when the lease that it saw would have ended.",
    ],
    "Redisson, plain": [
        "silent: `isHeldByCurrentThread` and `unlock` ask the server, and retry it for longer than others wait for the lock.",
        FORGOTTEN.format("A holder finds out when it asks or releases."),
        LEFT + " A command that may have changed data is not retried (RedisResponseTimeoutException).",
        "messages-lost: a waiter looks again when the lease that it saw would have ended.",
    ],
    "Curator": [
        "stopped: a client learns that its session is over when it next hears from ZooKeeper, so its first answers may still be yes.",
        "defaults: `isAcquiredInThisProcess` knows nothing of the session; Curator's documents recommend a ConnectionStateListener.",
        "silent: calls wait for the connection and are retried for longer than the judge's bound. kill-holder, kill-waiter: a session has to end, 60 s by default.",
    ],
    "redis-py": [
        "defaults: without `timeout` a lock has no lease, so nobody frees the lock of a dead holder.",
        "reply-lost, defaults: the client repeats the SET NX whose reply was lost, and then waits for its own lock.",
        NO_RENEWAL.format("`extend` or `reacquire`"),
        "silent: `owned` and `release` ask the server, and the client retries a read of 5 s ten times.",
        FORGOTTEN.format("A holder finds out when it asks or releases."),
    ],
    "python-redis-lock": [
        "defaults: without `expire` a lock has no lease, so nobody frees the lock of a dead holder.",
        "silent: as redis-py, whose client it uses. Nothing tells the holder that its renewals fail.",
    ],
    "redsync": [
        NO_RENEWAL.format("`Extend`"),
        FORGOTTEN.format("`Until`, which its documents advise, is the client's own clock and does not notice."),
        LEFT,
    ],
    "rslock": [NO_RENEWAL.format("`extend`"), "defaults: nothing tells of a loss, and the release does not say either.", LEFT],
    "distkit": [TASK, FORGOTTEN.format("Its guard learns of it by the next renewal."), LATE, LEFT],
    "async-redis-lock": [TASK, FORGOTTEN.format("Its guard learns of it by the next renewal."), LATE, LEFT],
    "sqlx advisory lock": [
        "stopped: the lock belongs to the session and has no lease, so a stopped holder keeps it. cut, restart: its session ends, and by default nothing tells the holder.",
        "silent: sqlx has no time-out for reads.",
    ],
}
