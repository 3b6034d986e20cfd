//! A program as a person can read it.

use std::fmt;

use fairlock::admin::LockKind;

use crate::program::{Ask, Program, Settings, Terms};

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "program of seed {}, response time-out {:?}", self.seed, self.response)?;
        for (number, kind) in self.locks.iter().enumerate() {
            writeln!(f, "  lock L{number}: {kind}")?;
        }
        for (number, client) in self.clients.iter().enumerate() {
            let Settings { lease, place_ttl, outage_limit, distance } = client;
            write!(f, "  client c{number}: lease {lease:?}, place {place_ttl:?}, outage {outage_limit:?}")?;
            writeln!(f, ", distance {distance:?}")?;
        }
        for (number, actor) in self.actors.iter().enumerate().filter(|(_, actor)| !actor.ops.is_empty()) {
            writeln!(f, "  actor a{number} of c{}:", actor.client)?;
            for op in &actor.ops {
                let hurt = op.hurt.map_or_else(String::new, |hurt| format!(" ({hurt:?})"));
                writeln!(f, "    {:>12} {:?}{hurt}", format!("{:?}", op.at), op.what)?;
            }
        }
        if let Some(crowd) = &self.crowd {
            writeln!(f, "  {crowd:?}")?;
        }
        for fault in &self.faults {
            writeln!(f, "  {fault:?}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "L{} ", self.lock)?;
        match self.kind {
            LockKind::ReadWrite => f.write_str(if self.writes() { "write" } else { "read" })?,
            LockKind::Semaphore { permits } => write!(f, "{} of {permits} permits", self.units)?,
            kind => write!(f, "{kind:?}")?,
        }
        match self.terms {
            Terms::Renewed => {}
            terms => write!(f, " {terms:?}")?,
        }
        self.owner.map_or(Ok(()), |owner| write!(f, " as owner {owner}"))?;
        self.unless.map_or(Ok(()), |unless| write!(f, " {unless:?}"))?;
        f.write_str(if self.by_task { " as a task" } else { "" })
    }
}
