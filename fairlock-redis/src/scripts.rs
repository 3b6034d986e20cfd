//! The Lua files, joined with the parts they use.

use std::sync::LazyLock;

/// One script: a file of `scripts/`, behind the parts of `scripts/lib/` that it uses.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) name: &'static str,
    pub(crate) source: String,
    pub(crate) sha: String,
}

impl Script {
    fn new(name: &'static str, parts: &[&str]) -> Script {
        let source = parts.concat();
        let sha = redis::Script::new(&source).get_hash().to_owned();
        Script { name, source, sha }
    }
}

const CLOCK: &str = include_str!("scripts/lib/clock.lua");
const GRANT: &str = include_str!("scripts/lib/grant.lua");
const LINE: &str = include_str!("scripts/lib/line.lua");

macro_rules! script {
    ($name:ident, $file:literal, $($part:ident)*) => {
        pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new($file, &[$($part,)* include_str!(concat!("scripts/", $file))]));
    };
}

script!(FAIR_ACQUIRE, "redisson/acquire.lua", CLOCK GRANT LINE);
script!(FAIR_RENEW, "redisson/renew.lua", CLOCK GRANT LINE);
script!(FAIR_RELEASE, "redisson/release.lua", CLOCK GRANT LINE);
script!(FAIR_WITHDRAW, "redisson/withdraw.lua", CLOCK GRANT LINE);
script!(FAIR_FORCE_RELEASE, "redisson/force_release.lua", CLOCK GRANT LINE);
script!(PLAIN_ACQUIRE, "plain/acquire.lua", CLOCK GRANT);
script!(PLAIN_RENEW, "plain/renew.lua", GRANT);
script!(PLAIN_RELEASE, "plain/release.lua", GRANT);
script!(PLAIN_WITHDRAW, "plain/withdraw.lua", GRANT);
script!(PLAIN_FORCE_RELEASE, "plain/force_release.lua", GRANT);
script!(HOLD_RENEW, "hold/renew.lua", GRANT);
script!(HOLD_SET_HOLDS, "hold/set_holds.lua", GRANT);
script!(INSPECT, "inspect.lua", CLOCK);

/// All of them.
pub(crate) fn all() -> [&'static Script; 13] {
    [
        &FAIR_ACQUIRE,
        &FAIR_RENEW,
        &FAIR_RELEASE,
        &FAIR_WITHDRAW,
        &FAIR_FORCE_RELEASE,
        &PLAIN_ACQUIRE,
        &PLAIN_RENEW,
        &PLAIN_RELEASE,
        &PLAIN_WITHDRAW,
        &PLAIN_FORCE_RELEASE,
        &HOLD_RENEW,
        &HOLD_SET_HOLDS,
        &INSPECT,
    ]
}
