//! A vote: the sentinels are asked until their answers decide, however far some of them are.

use std::sync::mpsc::{RecvTimeoutError, TryRecvError, channel};
use std::time::{Duration, Instant};

use super::report::{Late, MasterReport, Named, Round};
use super::survey::question;
use super::{Sentinel, SentinelState};
use crate::net::connection::{Address, Failure};
use crate::net::settings::MajorityTerms;
use crate::net::topology::fan_out::{LONGER, ask_all};

/// After this time without a decision all sentinels are asked once more: some may have changed their minds, and need not wait for the
/// silent or distant ones.
const AGAIN: Duration = Duration::from_millis(500);

impl Sentinel {
    /// The master that a majority names. Takes as long as the answers need to decide, connect + response time-out at most. The answers
    /// of one round are counted together: their proof begins when that round began.
    ///
    /// # Errors
    /// No sentinel says anything of the master, or there is no majority.
    pub(super) fn vote(&self, sentinels: &[Address], terms: MajorityTerms) -> Result<Named, Failure> {
        let (timeouts, asked) = (self.settings.timeouts, question(&self.name, true));
        let (sender, answers) = channel();
        let mut end = Instant::now() + timeouts.connect + timeouts.response;
        let (mut rounds, mut again): (Vec<Round>, Instant) = (Vec::new(), Instant::now());
        let mut failure = Failure::NotSent("no sentinel answers".into());
        loop {
            if Instant::now() >= again {
                let (number, sender) = (rounds.len(), sender.clone());
                rounds.push(Round::new(sentinels.len()));
                // A vote that is over hears no more.
                ask_all(sentinels, timeouts, &asked, move |answer| drop(sender.send((number, answer))));
                again = Instant::now() + AGAIN;
            }
            match answers.recv_timeout(again.min(end).saturating_duration_since(Instant::now())) {
                Ok((number, answer)) => {
                    let Some(round) = rounds.get_mut(number) else { continue };
                    round.pending -= 1;
                    let all = match self.report(answer) {
                        Ok(report) => self.state.lock().count(round, report, &terms),
                        Err(said) => {
                            failure = failure.or(said);
                            self.state.lock().electorate.count()
                        }
                    };
                    if let Ok(named) = round.named(all, terms.least_uptime) {
                        let late = Late { answers, number, round: rounds.swap_remove(number) };
                        return Ok(Named { late: Some(late), ..named });
                    }
                    let is_answered = rounds.iter().all(|round| round.pending == 0);
                    if !rounds.iter().any(|round| round.is_open(all)) {
                        // The others may say why.
                        end = end.min(Instant::now() + LONGER);
                    }
                    if !is_answered {
                        continue;
                    }
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < end => continue,
                Err(_) => {}
            }
            // The round in which most have answered tells why.
            let most = rounds.into_iter().max_by_key(|round| round.reports.len());
            let Some(most) = most.filter(|round| !round.reports.is_empty()) else { return Err(failure) };
            let all = self.state.lock().electorate.count();
            return most.named(all, terms.least_uptime);
        }
    }

    /// Counts the answers to the round that named the master, as they come.
    pub(super) fn hear_late(&self, state: &mut SentinelState) {
        let (Some(terms), Some(mut late)) = (self.settings.majority, state.late.take()) else { return };
        loop {
            match late.answers.try_recv() {
                Ok((number, answer)) if number == late.number => {
                    let Ok(report) = self.report(answer) else { continue };
                    let all = state.count(&mut late.round, report, &terms);
                    match late.round.named(all, terms.least_uptime) {
                        Ok(named) => state.voters = named.voters,
                        // There are more sentinels than those that have decided knew.
                        Err(_) => state.named = None,
                    }
                }
                Ok(_) => {}
                Err(TryRecvError::Empty) => break state.late = Some(late),
                Err(TryRecvError::Disconnected) => break,
            }
        }
    }
}

impl SentinelState {
    /// Adds this vote to those of the round. Returns how many sentinels there are, as far as known.
    fn count(&mut self, round: &mut Round, mut report: MasterReport, terms: &MajorityTerms) -> usize {
        let now = Instant::now();
        if self.electorate.hear(&report, now) {
            let is_older = |run| self.runs.is_older(&report.id, run, terms.least_uptime, now);
            report.is_old = report.run.as_ref().is_some_and(is_older);
            round.hear(report);
            self.electorate.settle(round.old().count(), now);
        }
        self.electorate.count()
    }
}

#[cfg(feature = "night")]
#[cfg(test)]
mod tests;
