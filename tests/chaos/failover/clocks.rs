//! Wrong clocks: the server that follows is ahead or behind by less than the clients' skew, and may tick at
//! another rate. `../faults/clocks` starts the servers so that their wall clocks follow a file.

use std::fmt;
use std::time::Duration;

use fairlock_tests::dice::Dice;
use fairlock_tests::{RedisServer, eventually, set_wall_clock};

use crate::setting::SKEW;

/// How far a clock is off, in milliseconds.
const SHIFTS: [i32; 2] = [-300, 300];
/// Its rate, in thousandths; leases have a margin of 10.
const RATES: [i32; 3] = [995, 1000, 1005];
/// How far it must be off at least, after what the rate has added since the server started.
const LEAST: Duration = Duration::from_millis(100);
/// What a question takes on a busy machine, at most; a later answer is not counted.
const PROMPT: Duration = Duration::from_millis(20);

/// The clock of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clock {
    shift: i32,
    rate: i32,
}

impl Clock {
    pub(crate) fn pick(dice: &mut Dice) -> Clock {
        Clock { shift: dice.pick(&SHIFTS), rate: dice.pick(&RATES) }
    }

    /// The same at the usual rate: what another rate adds since the server started grows, and must not exceed the skew.
    pub(crate) fn at_the_usual_rate(self) -> Clock {
        Clock { rate: 1000, ..self }
    }

    /// Sets this server's clock, and returns when it is wrong, and by less than the skew.
    #[track_caller]
    pub(crate) fn set(self, server: &RedisServer) {
        set_wall_clock(&server.dir().join("clock"), self.shift, 1000 * (self.rate - 1000));
        eventually("the server's clock is wrong, and by less than the skew", || {
            let before = std::time::UNIX_EPOCH.elapsed().expect("it is later");
            let (seconds, micros): (u64, u64) = server.query(&["TIME"]);
            let after = std::time::UNIX_EPOCH.elapsed().expect("it is later");
            let off = (Duration::from_secs(seconds) + Duration::from_micros(micros)).abs_diff(before);
            after - before < PROMPT && off > LEAST && off + PROMPT < SKEW
        });
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:+.3}s x{:.3}", f64::from(self.shift) / 1000.0, f64::from(self.rate) / 1000.0)
    }
}
