//! The store of the week, in virtual time: the Lua on a server.

use std::collections::BTreeMap;

use fairlock_core::LockKind;
use redis::Value;

use super::{DAY, LEASE, MINUTE, RAISED_EVERY};
use crate::commands::Command;
use crate::lua::{IN_TIME, LuaSubject};
use crate::lua_calls::call_of;
use crate::lua_replies::{answers, number};
use crate::words::{Answer, Millis};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    Lock,
    Ends,
    Queue,
    Record,
}

impl What {
    /// How long after the last use of a name it may be left.
    pub(super) fn stays_for(self) -> Millis {
        match self {
            What::Lock | What::Ends => LEASE + MINUTE + 1000,
            What::Queue | What::Record => DAY + RAISED_EVERY,
        }
    }
}

pub(super) struct Redis<'a>(pub(super) LuaSubject<'a>);

/// What the server would remove by itself, and then each key with its end.
const LEFT: &str = "
    local now = tonumber(redis.call('GET', 'virtual:clock'))
    local all, left = redis.call('HGETALL', 'virtual:ends'), {}
    for at = 1, #all, 2 do
        if tonumber(all[at + 1]) < now then redis.call('DEL', all[at]) redis.call('HDEL', 'virtual:ends', all[at]) end
    end
    for _, key in ipairs(redis.call('KEYS', '*')) do
        if string.sub(key, 1, 8) ~= 'virtual:' then
            left[#left + 1] = { key, redis.call('HGET', 'virtual:ends', key) or 'never' }
        end
    end
    return left";

impl Redis<'_> {
    pub(super) fn pass(&mut self, by: Millis) {
        (self.0.now, self.0.micros) = (self.0.now + by, 0);
    }

    pub(super) fn now(&self) -> Millis {
        self.0.now
    }

    /// The answers to commands that come at once, each of the lock with this name.
    pub(super) fn run(&mut self, commands: &[(String, LockKind, Command)]) -> Vec<Answer> {
        self.0.micros += 1;
        let mut pipe = self.0.begin();
        for (name, kind, command) in commands {
            let call = call_of(*kind, &self.0.say_deaf, IN_TIME, command).expect("a script");
            let mut keys = keys(*kind, name);
            if call.script == "hand_off/renew_holds" {
                keys.drain(1..3);
            }
            self.0.call(&mut pipe, &call.script, &keys, &call.arguments);
        }
        let replies: Vec<Value> = pipe.query(&mut self.0.con).unwrap();
        let answers =
            replies.iter().zip(commands).flat_map(|(reply, (_, _, command))| answers(command, Some(reply)));
        answers.collect()
    }

    /// All that is not over: for each name what, and until when. Removes the rest.
    pub(super) fn left(&mut self) -> BTreeMap<(String, What), Millis> {
        let mut pipe = self.0.begin();
        pipe.cmd("EVAL").arg(LEFT).arg(0);
        let (left,): (Vec<(String, String)>,) = pipe.query(&mut self.0.con).unwrap();
        let of = |(key, ends): (String, String)| {
            let what = [("queue", What::Queue), ("record", What::Record), ("ends", What::Ends)];
            let named = what.into_iter().find_map(|(word, what)| {
                let name = key.strip_prefix(&format!("fairlock_{word}:{{"))?.strip_suffix('}')?;
                Some((name.to_owned(), what))
            });
            let ends = ends.parse().unwrap_or_else(|_| panic!("{key} ends {ends}"));
            (named.unwrap_or((key, What::Lock)), ends)
        };
        left.into_iter().map(of).collect()
    }

    /// How much is kept of a name.
    pub(super) fn size(&mut self, name: &str) -> usize {
        let [_, queue, record, ends] = &keys(LockKind::ReadWrite, name)[..] else { panic!("four keys") };
        let mut pipe = redis::pipe();
        pipe.cmd("ZCARD").arg(queue).cmd("HLEN").arg(record).cmd("ZCARD").arg(ends).cmd("HLEN").arg(name);
        pipe.query::<Vec<Value>>(&mut self.0.con).unwrap().iter().map(number::<usize>).sum()
    }

    /// What a lock needs that is waited for, and what one needs that was used a day ago.
    pub(super) fn needs(&self, kind: LockKind) -> (Vec<What>, Vec<What>) {
        let ends = kind.is_shared().then_some(What::Ends).filter(|_| units(kind) < kind.capacity());
        let waited_for = [What::Lock, What::Queue, What::Record].into_iter().chain(ends);
        (waited_for.collect(), vec![What::Record])
    }
}

fn keys(kind: LockKind, name: &str) -> Vec<String> {
    let own = |what| format!("fairlock_{what}:{{{name}}}");
    let keys = [name.to_owned(), own("queue"), own("record"), own("ends")];
    keys[..if kind.is_shared() { 4 } else { 3 }].to_vec()
}

/// What a request takes: the unit of a fair lock, most of a semaphore's, all of a read-write lock's.
pub(super) fn units(kind: LockKind) -> u32 {
    match kind {
        LockKind::Semaphore { permits } => permits - 1,
        kind => kind.capacity(),
    }
}
