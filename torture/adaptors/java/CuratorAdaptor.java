// Curator's InterProcessMutex on ZooKeeper. With LISTENS a hold counts as lost when the connection is suspended, as its documents advise.
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;

class CuratorAdaptor extends Words {
    private final CuratorFramework curator;
    private InterProcessMutex held;
    private volatile boolean wasSuspended;

    CuratorAdaptor() throws Exception {
        CuratorFrameworkFactory.Builder builder = CuratorFrameworkFactory.builder()
            .connectString(System.getenv("TORTURE_ADDRESS")).retryPolicy(new ExponentialBackoffRetry(1000, 3));
        set("LEASE_MS", value -> builder.sessionTimeoutMs((int) value));
        curator = builder.build();
        if (System.getenv("LISTENS") != null) {
            curator.getConnectionStateListenable().addListener((client, state) ->
                wasSuspended |= state == ConnectionState.SUSPENDED || state == ConnectionState.LOST);
        }
        curator.start();
        curator.blockUntilConnected();
    }

    private InterProcessMutex of(String name) {
        wasSuspended = false;
        held = new InterProcessMutex(curator, "/" + name.replace(':', '-'));
        return held;
    }

    boolean lock(String name, Long milliseconds) throws Exception {
        if (milliseconds != null) {
            return of(name).acquire(milliseconds, TimeUnit.MILLISECONDS);
        }
        of(name).acquire();
        return true;
    }

    boolean tryLock(String name) throws Exception {
        return of(name).acquire(0, TimeUnit.MILLISECONDS);
    }

    boolean isHeld() {
        return held.isAcquiredInThisProcess() && !wasSuspended;
    }

    boolean unlock() throws Exception {
        held.release();
        return !wasSuspended;
    }

    public static void main(String[] args) throws Exception {
        new CuratorAdaptor().run();
    }
}
