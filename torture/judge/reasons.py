"""Why a library does what the table shows, by its documents or its source: a line for each kind of bad cell."""

FORGOTTEN = "clock, fail-over, restart-empty: the server has forgotten the lock and grants it again. {}"
NO_RENEWAL = "stall: nothing renews the lease unless the program calls {}, and a blocked thread calls nothing."
TASK = "stall: a task on the program's own executor renews the lease, and the executor is blocked."
NEXT_RENEWAL = "The guard learns of the loss by the next renewal."
STOPPED = "stopped: the guard learns of the loss by the next renewal, so its first answers may still be yes."
LEFT = "cancelled, reply-lost, kill-holder: a lock that nobody uses is free when its lease ends."
ASKS = "silent: `isHeldByCurrentThread` and `unlock` ask the server, and repeat the question for longer than others wait for the lock."
NOT_REPEATED = " The client does not repeat a command that may have changed data (RedisResponseTimeoutException)."
LOOKS = "messages-lost: a waiter looks again when the lease that it saw would have ended."

REASONS = {
    "fairlock, Redis": [
        "clock: the step ends the lease early, and the server grants the lock to the next client. The first holder learns of the loss by its next "
        "renewal, a third of its lease later. docs/promises.md says: slew a server's clock, never step it.",
        "fail-over, restart-empty: without `durable` the server has forgotten the lock, and grants it again after one place TTL. The first holder learns "
        "of the loss by its next renewal, 10 s later at most: docs/promises.md allows two holders until then.",
        "kill-holder: a dead holder's lease ends after 30 s by default. messages-lost: the answer to a waiter's next heartbeat tells it of the grant, 1.7 s later at most.",
    ],
    "fairlock, PostgreSQL": [
        "clock: as on Redis.",
        "fail-over: the standby lacks the lock's row, so the lock is granted again. The first holder learns of the loss by its next renewal, 10 s later at "
        "most. docs/promises.md says: only a synchronous standby forgets nothing. Waiters that come back wait for one place TTL, so that they keep their order.",
        "kill-holder: a dead holder's lease ends after 30 s by default. messages-lost: the answer to a waiter's next heartbeat tells it of the grant, 1.7 s later at most.",
    ],
    "Redisson, fair": [
        ASKS,
        FORGOTTEN.format("The first holder finds out when it asks or releases. Waiters lose their places."),
        LEFT + NOT_REPEATED,
        "kill-waiter: a dead waiter keeps its place for fairLockWaitTimeout, 5 minutes by default, so the waiter behind it hangs by the judge's bound.",
        LOOKS,
    ],
    "Redisson, plain": [ASKS, FORGOTTEN.format("The first holder finds out when it asks or releases."), LEFT + NOT_REPEATED, LOOKS],
    "Curator": [
        "stopped: a client learns that its session is over when it next hears from ZooKeeper, so its first answers may still be yes.",
        "silent, stopped: by default `isAcquiredInThisProcess` knows nothing of the session. Curator's documents recommend a ConnectionStateListener.",
        "silent: a call waits for the connection and is repeated for longer than the judge's bound.",
        "kill-holder, kill-waiter: a dead client's session has to end first, after 60 s by default.",
        "clock: ZooKeeper's sessions end by its monotonic clock. fail-over: a majority of the servers has each lock before it is granted.",
    ],
    "redis-py": [
        "kill-holder: without `timeout` a lock has no lease, so nobody frees the lock of a dead holder.",
        "reply-lost: the client repeats the SET NX whose reply was lost, and then waits for its own lock, for ever without `timeout`.",
        NO_RENEWAL.format("`extend` or `reacquire`"),
        "silent: `owned` and `release` ask the server, and the client repeats a read of 5 s ten times.",
        FORGOTTEN.format("The first holder finds out when it asks or releases."),
    ],
    "python-redis-lock": [
        "kill-holder: without `expire` a lock has no lease, so nobody frees the lock of a dead holder.",
        "silent: as redis-py, whose client it uses. Nothing tells the holder that its renewals fail.",
    ],
    "redsync": [
        NO_RENEWAL.format("`Extend`"),
        FORGOTTEN.format("The holder asks `Until`, as redsync's documents advise: it compares with the client's own clock and does not notice."),
        LEFT,
    ],
    "rslock": [
        NO_RENEWAL.format("`extend`"),
        "all faults, by default: nothing tells the holder of a loss, and the release does not say either.",
        LEFT,
    ],
    "redisson (crate)": [
        "all faults: `lock` of a held lock fails at once for the first waiter, and after ten seconds for those behind it, so the judge asks again: "
        "who gets the lock is chance. `try_lock` does not ask at all.",
        "reply-lost: a request whose answer was lost stays in the list that is the queue. The list has no end, and nobody gets the lock any more. A "
        "waiter that is killed behind another one leaves the same.",
        "stall, stopped, silent: nothing renews the lease of a fair lock, and nothing tells the holder that it is over.",
        FORGOTTEN.format("Nothing tells the holder, but `unlock` says so."),
    ],
    "distkit": [TASK, FORGOTTEN.format(NEXT_RENEWAL), STOPPED, LEFT],
    "async-redis-lock": [TASK, FORGOTTEN.format(NEXT_RENEWAL), STOPPED, LEFT],
    "sqlx advisory lock": [
        "stopped: the lock belongs to the session and has no lease, so a stopped holder keeps it. clock: no time is part of the lock.",
        "cut, fail-over, restart: the session ends and its lock with it. By default nothing tells the holder.",
        "silent: sqlx has no time-out for reads.",
    ],
}
