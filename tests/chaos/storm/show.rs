//! A program as a person can read it.

use std::fmt;

use fairlock::LockKind;

use crate::program::{Ask, Program, Settings, Several, Terms, Wait, What};

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "program of seed {}, response time-out {:?}", self.seed, self.response)?;
        for (number, kind) in self.locks.iter().enumerate() {
            writeln!(f, "  lock L{number}: {kind}")?;
        }
        for (number, client) in self.clients.iter().enumerate() {
            let Settings { lease, place_ttl, outage_limit } = client;
            writeln!(f, "  client c{number}: lease {lease:?}, place {place_ttl:?}, outage {outage_limit:?}")?;
        }
        for (number, actor) in self.actors.iter().enumerate().filter(|(_, actor)| !actor.ops.is_empty()) {
            writeln!(f, "  actor a{number} of c{}:", actor.client)?;
            for op in &actor.ops {
                let hurt = op.hurt.map_or_else(String::new, |hurt| format!(" ({hurt:?})"));
                writeln!(f, "    {:>12} {}{hurt}", format!("{:?}", op.at), op.what)?;
            }
        }
        for fault in &self.faults {
            writeln!(f, "  {fault}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "L{} ", self.lock)?;
        match self.kind {
            LockKind::ReadWrite => f.write_str(if self.writes() { "write" } else { "read" })?,
            LockKind::Semaphore { permits } => write!(f, "{} of {permits} permits", self.takes)?,
            kind => write!(f, "{kind:?}")?,
        }
        match self.terms {
            Terms::Renewed => {}
            terms => write!(f, " {terms:?}")?,
        }
        self.owner.map_or(Ok(()), |owner| write!(f, " as owner {owner}"))?;
        f.write_str(if self.by_task { " as a task" } else { "" })
    }
}

impl fmt::Display for Several {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(|lock| format!("L{lock}")).collect();
        f.write_str(&names.join(" and "))
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Take { ask, wait: Wait::No, .. } => write!(f, "try_lock {ask}"),
            What::Take { ask, wait: Wait::UpTo(time), .. } => write!(f, "try_lock_for({time:?}) {ask}"),
            What::Take { ask, wait: Wait::Forever, .. } => write!(f, "lock {ask}"),
            What::With { ask, wait, lasts } => write!(f, "with {wait:?} {ask}, for {lasts:?}"),
            What::TakeAll { locks, wait, .. } => write!(f, "lock_all {wait:?} {locks}"),
            What::GiveBack { guard, end } => write!(f, "{end:?} guard {guard}"),
            What::Unleak { nth } => write!(f, "unlock leaked {nth}"),
            What::Bump { guard } => write!(f, "bump guard {guard}"),
            What::Renew { guard } => write!(f, "renew guard {guard}"),
            What::Outlive { guard } => write!(f, "outlive guard {guard}, and ask again"),
            What::Request { ask } => write!(f, "request {ask}"),
            What::Await { request, wait } => write!(f, "await {wait:?} request {request}"),
            What::Withdraw { request } => write!(f, "drop request {request}"),
            What::Cancel { actor } => write!(f, "cancel a{actor}"),
            What::Force { lock } => write!(f, "force_unlock L{lock}"),
            What::ForceOne { lock, nth } => write!(f, "force_unlock_of L{lock} holder {nth}"),
            What::Kick { lock, nth } => write!(f, "kick L{lock} waiter {nth}"),
            What::Look { lock } => write!(f, "inspect L{lock}"),
            What::Shutdown => f.write_str("shutdown"),
            What::Drain { at_most } => write!(f, "drain, at most {at_most:?}"),
            What::DropClient => f.write_str("drop client"),
            What::Restart => f.write_str("new client"),
        }
    }
}
