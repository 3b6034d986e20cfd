package fairlock.interop;

import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisTimeoutException;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/**
 * One Redisson client that executes commands, line by line.
 *
 * <pre>
 * java fairlock.interop.Peer URL WATCHDOG_MS
 *   it says   ready CLIENT_ID
 *   it hears  ID THREAD VERB WORD...        the first line for a name starts its thread
 *   it says   ID BEGAN ENDED RESULT         System.nanoTime(), on Linux CLOCK_MONOTONIC as every process sees it
 *             ID BEGAN ENDED !EXCEPTION MESSAGE
 * </pre>
 *
 * Lines of one thread run one after the other, those of different threads in parallel. The end of the input ends the
 * process at once, without unlocking anything.
 */
public final class Peer {
    private final RedissonClient redisson;
    private final Map<String, Worker> workers = new ConcurrentHashMap<>();

    public static void main(String[] args) throws IOException {
        Config config = new Config();
        config.setLockWatchdogTimeout(Long.parseLong(args[1]));
        config.setThreads(4);
        config.setNettyThreads(4);
        config.useSingleServer()
                .setAddress(args[0])
                .setConnectionMinimumIdleSize(4)
                .setConnectionPoolSize(16)
                .setSubscriptionConnectionMinimumIdleSize(1);
        Peer peer = new Peer(Redisson.create(config));
        say("ready " + peer.redisson.getId());
        peer.listen();
        Runtime.getRuntime().halt(0);
    }

    private Peer(RedissonClient redisson) {
        this.redisson = redisson;
    }

    private void listen() throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            workers.computeIfAbsent(words[1], Worker::new).lines.add(words);
        }
    }

    /** One thread, which is one owner for Redisson. */
    private final class Worker extends Thread {
        final LinkedBlockingQueue<String[]> lines = new LinkedBlockingQueue<>();

        Worker(String name) {
            super(name);
            setDaemon(true);
            start();
        }

        @Override
        public void run() {
            while (true) {
                String[] words;
                try {
                    words = lines.take();
                } catch (InterruptedException late) {
                    continue; // it was meant for an earlier wait
                }
                long began = System.nanoTime();
                String result;
                try {
                    result = perform(words[2], Arrays.copyOfRange(words, 3, words.length));
                } catch (Throwable problem) {
                    String message = String.valueOf(problem.getMessage()).replace('\n', ' ');
                    result = "!" + problem.getClass().getSimpleName() + " " + message;
                }
                say(words[0] + " " + began + " " + System.nanoTime() + " " + result);
            }
        }
    }

    private String perform(String verb, String[] words)
            throws InterruptedException, ExecutionException, IOException {
        switch (verb) {
            case "owner":
                return redisson.getId() + ":" + Thread.currentThread().getId();
            case "hget":
                return String.valueOf(redisson.getMap(words[0], StringCodec.INSTANCE).get(words[1]));
            case "asleep": // THREAD: whether it waits on its latch, which is made before it has subscribed
                return "" + Arrays.stream(workers.get(words[0]).getStackTrace())
                        .anyMatch(frame -> frame.getClassName().equals("java.util.concurrent.Semaphore")
                                && frame.getMethodName().matches("acquire|tryAcquire"));
            case "permits": // NAME PERMITS: of a semaphore
                return "" + redisson.getSemaphore(words[0]).trySetPermits(Integer.parseInt(words[1]));
            case "trypermit": // NAME
                return "" + redisson.getSemaphore(words[0]).tryAcquire();
            default:
                return perform(verb, lock(words[0], words[1]), words);
        }
    }

    private RLock lock(String kind, String name) {
        switch (kind) {
            case "fair":
                return redisson.getFairLock(name);
            case "plain":
                return redisson.getLock(name);
            case "read":
                return redisson.getReadWriteLock(name).readLock();
            case "write":
                return redisson.getReadWriteLock(name).writeLock();
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    /** Times are in milliseconds. */
    private String perform(String verb, RLock lock, String[] words)
            throws InterruptedException, ExecutionException, IOException {
        switch (verb) {
            case "lock": // [LEASE]
                if (words.length > 2) {
                    lock.lock(number(words[2]), TimeUnit.MILLISECONDS);
                } else {
                    lock.lock();
                }
                return "ok";
            case "lock-interruptibly":
                lock.lockInterruptibly();
                return "ok";
            case "trylock": // [WAIT [LEASE]]
                if (words.length > 3) {
                    return "" + lock.tryLock(number(words[2]), number(words[3]), TimeUnit.MILLISECONDS);
                } else if (words.length > 2) {
                    return "" + lock.tryLock(number(words[2]), TimeUnit.MILLISECONDS);
                } else {
                    return "" + lock.tryLock();
                }
            case "trylock-async": // WAIT LEASE
                return "" + lock.tryLockAsync(number(words[2]), number(words[3]), TimeUnit.MILLISECONDS).get();
            case "unlock":
                lock.unlock();
                return "ok";
            case "force":
                return "" + lock.forceUnlock();
            case "count":
                return "" + lock.getHoldCount();
            case "locked":
                return "" + lock.isLocked();
            case "ttl":
                return "" + lock.remainTimeToLive();
            case "work": // MILLIS TURNS HISTORY
            case "work-on": // the same; asks again if Redisson has lost its subscription
                boolean goesOn = verb.equals("work-on");
                return "" + work(lock, number(words[2]), number(words[3]), words[4], goesOn);
            default:
                throw new IllegalArgumentException(verb);
        }
    }

    private static long number(String word) {
        return Long.parseLong(word);
    }

    /** Takes turns until both the time and the number are reached; events go to the history file. */
    private static long work(RLock lock, long millis, long atLeast, String history, boolean goesOn)
            throws IOException {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
        long turns = 0;
        try (FileOutputStream file = new FileOutputStream(history, true)) {
            while (turns < atLeast || System.nanoTime() < end) {
                record(file, "ask -", lock);
                while (!lockOrFail(lock, goesOn)) {
                    record(file, "failed -", lock);
                    record(file, "ask -", lock);
                }
                record(file, "granted 0", lock); // Redisson has no token
                record(file, "release -", lock);
                lock.unlock();
                turns++;
            }
        }
        return turns;
    }

    /** Waits for the lock; false if Redisson's subscription queue has lost this wait, whose place stays. */
    private static boolean lockOrFail(RLock lock, boolean goesOn) {
        try {
            lock.lock();
            return true;
        } catch (RedisTimeoutException problem) {
            if (goesOn && problem.getMessage().startsWith("Unable to acquire subscription lock")) {
                return false;
            }
            throw problem;
        }
    }

    /** Writes a line for tests/support/history.rs in one write, so that several threads may share a file. */
    private static void record(FileOutputStream file, String event, RLock lock) throws IOException {
        String who = Thread.currentThread().getName();
        String line = System.nanoTime() + " " + PID + " " + who + " " + event + " " + lock.getName() + "\n";
        file.write(line.getBytes(StandardCharsets.UTF_8));
    }

    private static final String PID =
            java.lang.management.ManagementFactory.getRuntimeMXBean().getName().split("@")[0];

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
