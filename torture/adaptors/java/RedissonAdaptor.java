// Redisson: RedissonAdaptor fair | plain.
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

class RedissonAdaptor extends Words {
    private final RedissonClient redisson;
    private final boolean isFair;
    private RLock held;

    RedissonAdaptor(boolean isFair) {
        Config config = new Config();
        config.useSingleServer().setAddress(System.getenv("TORTURE_ADDRESS"));
        set("LEASE_MS", config::setLockWatchdogTimeout);
        set("WAITER_MS", config::setFairLockWaitTimeout);
        set("RESPONSE_MS", value -> config.useSingleServer().setTimeout((int) value));
        this.isFair = isFair;
        redisson = Redisson.create(config);
    }

    private RLock of(String name) {
        held = isFair ? redisson.getFairLock(name) : redisson.getLock(name);
        return held;
    }

    boolean lock(String name, Long milliseconds) throws Exception {
        if (milliseconds != null) {
            return of(name).tryLock(milliseconds, TimeUnit.MILLISECONDS);
        }
        of(name).lock();
        return true;
    }

    boolean tryLock(String name) {
        return of(name).tryLock();
    }

    boolean isHeld() {
        return held.isHeldByCurrentThread();
    }

    boolean unlock() {
        try {
            held.unlock();
            return true;
        } catch (IllegalMonitorStateException e) {
            return false; // not locked by this thread
        }
    }

    public static void main(String[] args) throws Exception {
        new RedissonAdaptor(args[0].equals("fair")).run();
    }
}
