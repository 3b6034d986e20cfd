//! One of the two worlds that are compared, and how the harm in it is done ([`Harm`]).

use fairlock_core::LockKind;
use redis::Value;

use crate::commands::{Command, Harm};
use crate::lua::{Exchange, IN_TIME, LuaServer, LuaSubject, keys_of};

pub(crate) struct World<'a> {
    pub(crate) subject: LuaSubject<'a>,
    kind: LockKind,
}

impl<'a> World<'a> {
    pub(crate) fn new(lua: &'a LuaServer, kind: LockKind) -> World<'a> {
        let subject = LuaSubject::new(lua, kind);
        World { subject, kind }
    }

    pub(crate) fn run(&mut self, command: &Command) -> Result<Exchange, String> {
        if let Command::Harm(harm) = command {
            self.harm(*harm);
        }
        self.subject.exchange(command)
    }

    fn harm(&mut self, harm: Harm) {
        let World { subject, kind, .. } = self;
        let keys = |lock| keys_of(*kind, lock);
        let record = |lock: usize| keys(lock).swap_remove(2);
        let mut pipe = subject.begin();
        match harm {
            Harm::LoseKey { lock, key } => pipe.cmd("DEL").arg(&keys(lock)[key]),
            Harm::LoseAll => pipe.cmd("FLUSHALL"),
            // In virtual time.
            Harm::Persists(lock) => pipe.cmd("HDEL").arg("virtual:ends").arg(&keys(lock)[0]),
            Harm::SetBack(by) => {
                subject.now -= by;
                &mut pipe
            }
            Harm::RunsAhead { lock, by } => {
                let ahead = (subject.now + by) * 1000;
                pipe.cmd("EVAL").arg(RUN_AHEAD).arg(1).arg(record(lock)).arg(ahead)
            }
            Harm::PlainTakes(lock) => {
                let arguments =
                    [PLAIN, "1", "12000", "0", "0", "once", "", "plain", IN_TIME].map(str::to_owned);
                let keys = [keys(lock)[0].clone(), record(lock)];
                subject.call(&mut pipe, "redisson/acquire", &keys, &arguments);
                pipe.ignore_errors() // if others hold it
            }
            Harm::PlainGives(lock) => pipe.cmd("HDEL").arg(&keys(lock)[0]).arg(PLAIN),
            Harm::SaysDeaf(client) => {
                subject.say_deaf.insert(client);
                &mut pipe
            }
            Harm::SaysNothing(client) => {
                subject.say_deaf.remove(&client);
                &mut pipe
            }
            Harm::ArriveLate(late) => {
                subject.arrives_late = late;
                &mut pipe
            }
            Harm::Intrudes(lock) => pipe.cmd("EVAL").arg(INTRUDES).arg(1).arg(&keys(lock)[1]),
            Harm::Resizes(lock) => pipe.cmd("EVAL").arg(RESIZES).arg(2).arg(&keys(lock)[0]).arg(record(lock)),
        };
        pipe.query::<Value>(&mut subject.con).unwrap();
    }
}

const PLAIN: &str = "00000000-0000-4000-8000-000000000002:9";
const RUN_AHEAD: &str = "
    local last = redis.call('HGET', KEYS[1], 'last')
    if last and last < ARGV[1] then redis.call('HSET', KEYS[1], 'last', ARGV[1]) end";
/// `mode` of the lock, and the capacity in each place.
const RESIZES: &str = "
    local function more(before, capacity, after) return before .. string.format('%.0f', capacity + 1) .. after end
    local mode = redis.call('HGET', KEYS[1], 'mode')
    if mode then redis.call('HSET', KEYS[1], 'mode', more('', mode, '')) end
    local all = redis.call('HGETALL', KEYS[2])
    for at = 1, #all, 2 do
        local text, times = string.gsub(all[at + 1], '^(%d+ )(%d+)( %d+ %d+ %d+ [-d][-n] )', more)
        if times > 0 then redis.call('HSET', KEYS[2], all[at], text) end
    end";
const INTRUDES: &str =
    "if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('ZADD', KEYS[1], 5, 'intruder') end";
