// The worker for the peers in Java. The table in bench/drive/workers.py describes its modes and output.
package fairlock.bench;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.RetryOneTime;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

public class Worker {
    interface Mutex {
        void lock() throws Exception;

        void unlock() throws Exception;
    }

    record Event(int thread, long asked, long granted, long leaving) {}

    static final PrintStream out = new PrintStream(System.out, false);
    static final BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    static final int PERMITS = 4;
    static final int MOST_CYCLES = 200_000; // more cycles add nothing
    static final long epoch;

    static {
        Instant now = Instant.now();
        epoch = now.getEpochSecond() * 1_000_000_000L + now.getNano() - System.nanoTime();
    }

    static long now() {
        return System.nanoTime() + epoch;
    }

    public static void main(String[] args) throws Exception {
        String mode = args[1];
        String name = args[2];
        int count = Integer.parseInt(args[3]);
        double seconds = Double.parseDouble(args[4]);
        double holdMs = Double.parseDouble(args[5]);
        long leaseMs = Long.parseLong(args[6]);
        double warm = Double.parseDouble(args[7]);
        Function<String, Mutex> peer = connect(args[0], leaseMs);
        Mutex mutex = peer.apply(name);
        switch (mode) {
            case "uncontended" -> cycles(mutex, seconds, warm);
            case "reentry" -> {
                mutex.lock();
                cycles(mutex, seconds, warm);
            }
            case "turns" -> {
                turns(peer, name, count, warm, 0);
                handshake();
                List<Event> events = turns(peer, name, count, seconds, holdMs);
                StringBuilder text = new StringBuilder();
                for (Event e : events) {
                    text.append("e ").append(e.thread).append(' ').append(e.asked).append(' ').append(e.granted)
                        .append(' ').append(e.leaving).append('\n');
                }
                out.print(text);
                say("done");
            }
            case "hold" -> {
                handshake();
                mutex.lock();
                say("granted " + now());
                in.readLine();
                long leaving = now();
                mutex.unlock();
                say("released " + leaving);
            }
            case "idle" -> {
                mutex.lock();
                for (int i = 0; i < count; i++) {
                    Mutex waiting = peer.apply(name);
                    new Thread(() -> {
                        try {
                            waiting.lock();
                        } catch (Exception e) {
                            throw new IllegalStateException(e);
                        }
                    }).start();
                }
                handshake();
            }
            case "many" -> {
                many(peer, name, count, warm);
                handshake();
                long ops = many(peer, name, count, seconds);
                say("ops " + ops);
                in.readLine();
            }
            default -> throw new IllegalArgumentException(mode);
        }
        out.flush();
        Runtime.getRuntime().halt(0);
    }

    static void say(String line) {
        out.println(line);
        out.flush();
    }

    static void handshake() throws Exception {
        say("ready");
        in.readLine();
    }

    static void cycles(Mutex mutex, double seconds, double warm) throws Exception {
        cyclesFor(mutex, warm);
        handshake();
        StringBuilder text = new StringBuilder("ns");
        for (long time : cyclesFor(mutex, seconds)) {
            text.append(' ').append(time);
        }
        say(text.toString());
        in.readLine();
    }

    static List<Long> cyclesFor(Mutex mutex, double seconds) throws Exception {
        List<Long> times = new ArrayList<>();
        long end = System.nanoTime() + (long) (seconds * 1e9);
        long last = System.nanoTime();
        while (last < end && times.size() < MOST_CYCLES) {
            mutex.lock();
            mutex.unlock();
            long next = System.nanoTime();
            times.add(next - last);
            last = next;
        }
        return times;
    }

    static List<Event> turns(Function<String, Mutex> peer, String name, int count, double seconds, double holdMs)
            throws Exception {
        List<Event> all = new ArrayList<>();
        long end = now() + (long) (seconds * 1e9);
        CountDownLatch done = new CountDownLatch(count);
        for (int i = 0; i < count; i++) {
            int thread = i;
            Mutex mutex = peer.apply(name);
            new Thread(() -> {
                List<Event> mine = new ArrayList<>();
                try {
                    while (now() < end) {
                        long asked = now();
                        mutex.lock();
                        long granted = now();
                        if (holdMs > 0) {
                            Thread.sleep((long) holdMs);
                        }
                        long leaving = now();
                        mutex.unlock();
                        mine.add(new Event(thread, asked, granted, leaving));
                    }
                } catch (Exception e) {
                    e.printStackTrace();
                    Runtime.getRuntime().halt(1);
                }
                synchronized (all) {
                    all.addAll(mine);
                }
                done.countDown();
            }).start();
        }
        done.await();
        return all;
    }

    static long many(Function<String, Mutex> peer, String name, int count, double seconds) throws Exception {
        AtomicLong ops = new AtomicLong();
        long end = now() + (long) (seconds * 1e9);
        CountDownLatch done = new CountDownLatch(count);
        for (int i = 0; i < count; i++) {
            int thread = i;
            new Thread(() -> {
                try {
                    for (int n = thread * 625; now() < end; n++) {
                        Mutex mutex = peer.apply(name + ":" + n % 10_000);
                        mutex.lock();
                        mutex.unlock();
                        ops.incrementAndGet();
                    }
                } catch (Exception e) {
                    e.printStackTrace();
                    Runtime.getRuntime().halt(1);
                }
                done.countDown();
            }).start();
        }
        done.await();
        return ops.get();
    }

    /** Every tenth hold is a write, as in the other workers. */
    static class ReadWrite implements Mutex {
        private final Mutex read;
        private final Mutex write;
        private int holds;
        private Mutex held;

        ReadWrite(Mutex read, Mutex write) {
            this.read = read;
            this.write = write;
        }

        public void lock() throws Exception {
            Mutex next = ++holds % 10 == 0 ? write : read;
            next.lock();
            held = next;
        }

        public void unlock() throws Exception {
            held.unlock();
        }
    }

    /** A mutex of Curator's. */
    record Holder(InterProcessMutex mutex) implements Mutex {
        public void lock() throws Exception {
            mutex.acquire();
        }

        public void unlock() throws Exception {
            mutex.release();
        }
    }

    static String path(String name) {
        return "/" + name.replace(':', '-');
    }

    static Mutex of(RLock lock) {
        return new Mutex() {
            public void lock() {
                lock.lock();
            }

            public void unlock() {
                lock.unlock();
            }
        };
    }

    static Function<String, Mutex> connect(String peer, long leaseMs) {
        String kind = peer.substring(peer.indexOf('-') + 1);
        if (peer.startsWith("curator")) {
            CuratorFramework curator = CuratorFrameworkFactory.builder()
                .connectString(System.getenv("BENCH_ZOOKEEPER")).sessionTimeoutMs((int) leaseMs)
                .connectionTimeoutMs(10_000).retryPolicy(new RetryOneTime(100)).build();
            curator.start();
            if (kind.equals("rw")) {
                return name -> {
                    InterProcessReadWriteLock lock = new InterProcessReadWriteLock(curator, path(name));
                    return new ReadWrite(new Holder(lock.readLock()), new Holder(lock.writeLock()));
                };
            }
            if (kind.equals("permits")) {
                return name -> {
                    InterProcessSemaphoreV2 permits = new InterProcessSemaphoreV2(curator, path(name), PERMITS);
                    return new Mutex() {
                        private Lease lease;

                        public void lock() throws Exception {
                            lease = permits.acquire();
                        }

                        public void unlock() {
                            permits.returnLease(lease);
                        }
                    };
                };
            }
            return name -> new Holder(new InterProcessMutex(curator, path(name)));
        }
        Config config = new Config();
        config.setLockWatchdogTimeout(leaseMs);
        config.useSingleServer().setAddress(System.getenv("BENCH_REDIS"));
        RedissonClient redisson = Redisson.create(config);
        return name -> switch (kind) {
            case "fair" -> of(redisson.getFairLock(name));
            case "rw" -> {
                RReadWriteLock lock = redisson.getReadWriteLock(name);
                yield new ReadWrite(of(lock.readLock()), of(lock.writeLock()));
            }
            case "permits" -> {
                RPermitExpirableSemaphore permits = redisson.getPermitExpirableSemaphore(name);
                permits.trySetPermits(PERMITS);
                yield new Mutex() {
                    private String permit;

                    public void lock() throws Exception {
                        permit = permits.acquire(leaseMs, TimeUnit.MILLISECONDS);
                    }

                    public void unlock() {
                        permits.release(permit);
                    }
                };
            }
            default -> of(redisson.getLock(name));
        };
    }
}
