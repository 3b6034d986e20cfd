// The six words for a library in Java: read from the standard input, answered on the standard output.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.function.LongConsumer;

abstract class Words {
    abstract boolean lock(String name, Long milliseconds) throws Exception;

    abstract boolean tryLock(String name) throws Exception;

    abstract boolean isHeld() throws Exception;

    /** False: the hold was lost. */
    abstract boolean unlock() throws Exception;

    /** Hands on the judge's setting, if there is one. */
    static void set(String name, LongConsumer setter) {
        if (System.getenv(name) != null) {
            setter.accept(Long.parseLong(System.getenv(name)));
        }
    }

    void run() throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            try {
                System.out.println(answer(words));
            } catch (Exception e) {
                System.out.println(("error " + e).replace('\n', ' '));
            }
        }
        System.exit(0);
    }

    private String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "lock":
                return lock(words[1], words.length > 2 ? Long.valueOf(words[2]) : null) ? "granted" : "timeout";
            case "try":
                return tryLock(words[1]) ? "granted" : "busy";
            case "held?":
                return isHeld() ? "yes" : "no";
            case "unlock":
                return unlock() ? "ok" : "lost";
            case "stall":
                Thread.sleep(Long.parseLong(words[1]));
                return "ok";
            default: // die
                Runtime.getRuntime().halt(1);
                return "";
        }
    }
}
