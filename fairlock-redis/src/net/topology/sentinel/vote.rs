//! What the sentinels are asked and say: of themselves and each other for an operator, and of the master, in a vote.
//!
//! The sentinels are asked until their answers decide, however far some of them are. More than half of
//! all sentinels have to name the master.
//!
//! Two proofs, for two masters, have to share a sentinel. So a client counts every sentinel that any sentinel has ever named:
//! after `SENTINEL RESET` a sentinel knows no other sentinel for a while, or for as long as it is cut off, and a few reset
//! sentinels would be a majority of themselves.
//!
//! Only a majority of the known sentinels can make the number smaller. If more than half name exactly the same sentinels, and for
//! [`SETTLED`] no answer names others, the named sentinels are all. The others no longer count, until a named sentinel names them
//! again. Any majority before (without stopped sentinels) and any majority after still share a sentinel. (Even if one removed
//! sentinel goes on: n / 2 + 1 of n share a sentinel with n / 2 + 1 of n - 1 among them. If several removed sentinels go on, the
//! sentinels themselves may elect two masters.)

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::{Duration, Instant};

use redis::{Cmd, Value, cmd};

use super::{Sentinel, SentinelState};
use crate::net::connection::{Address, Failure, items, number, text};
use crate::net::settings::MajorityTerms;
use crate::net::topology::{Answer, LONGER, Run, ask_all, fan_out, run_question};

/// One sentinel that is configured.
pub(crate) struct Surveyed {
    pub(crate) sentinel: Address,
    pub(crate) said: Result<SentinelAnswer, Failure>,
}

/// The answer of a sentinel; each part may be refused by itself.
pub(crate) struct SentinelAnswer {
    pub(crate) master: Result<Address, Failure>,
    pub(crate) details: Result<Details, Failure>,
    pub(crate) id: Result<String, Failure>,
    run: Result<Run, Failure>,
    /// The other sentinels that this sentinel knows: id, host and port.
    pub(crate) others: Result<Vec<(String, String)>, Failure>,
}

/// What a sentinel says of the master: names and values.
pub(crate) struct Details(Value);

impl Details {
    /// 0 if the sentinel does not say.
    pub(crate) fn number(&self, name: &str) -> u64 {
        let found = value_of(&self.0, name).and_then(|value| number(value).ok());
        found.and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
    }
}

/// The master's address and properties, and the sentinel's own id (from 6.2). If it votes, also its process and the other
/// sentinels.
pub(super) fn question(name: &str, votes: bool) -> Vec<Cmd> {
    let ask = |what: &str| cmd("SENTINEL").arg(what).to_owned();
    let of_master = |what: &str| ask(what).arg(name).to_owned();
    let mut question = vec![of_master("get-master-addr-by-name"), of_master("master"), ask("myid")];
    if votes {
        question.extend([run_question(), of_master("sentinels")]);
    }
    question
}

impl Sentinel {
    /// Asks each sentinel, for at most connect + response time-out.
    pub(super) fn ask_each(&self) -> Vec<Surveyed> {
        let all = &self.sentinels.all;
        let asked = question(&self.name, true);
        let answers = fan_out(all, self.settings.timeouts, &asked, all.len());
        let of = |sentinel: &Address| {
            let answer = answers.iter().find(|(from, _)| from.is_same_server(sentinel));
            let said = answer.map_or_else(|| Err(Failure::no_answer()), |(_, answer)| answer.clone());
            Surveyed {
                sentinel: sentinel.clone(),
                said: said.map(|replies| SentinelAnswer::read(&replies, &self.servers, sentinel)),
            }
        };
        all.iter().map(of).collect()
    }

    /// Adds the names of the known masters to the failure "no such master". Takes connect + response time-out at most.
    pub(super) fn with_known_masters(&self, failure: Failure) -> Failure {
        let is_unknown = |message: &str| message.contains(NO_SUCH_MASTER);
        if !matches!(&failure, Failure::Refused { message, .. } if is_unknown(message)) {
            return failure;
        }
        let question = [cmd("SENTINEL").arg("masters").to_owned()];
        let answers = fan_out(&self.sentinels.all, self.settings.timeouts, &question, 1);
        let replies = answers.into_iter().filter_map(|(_, replies)| replies.ok()).flatten().flatten();
        let mut names: Vec<String> = replies.flat_map(|masters| names(&masters)).collect();
        names.sort();
        names.dedup();
        if names.is_empty() {
            return failure;
        }
        Failure::refused("NOMASTER", &format!("they know {}", names.join(", ")))
    }
}

/// How a sentinel refuses a name.
const NO_SUCH_MASTER: &str = "No such master with that name";

/// The names in the reply to SENTINEL MASTERS.
fn names(masters: &Value) -> Vec<String> {
    let name =
        |details| text(value_of(details, "name")?).ok().map(|name| format!("`{}`", name.escape_debug()));
    items(masters).map_or_else(|_| Vec::new(), |masters| masters.iter().filter_map(name).collect())
}

impl SentinelAnswer {
    /// How many sentinels this sentinel knows, with itself. A user that may not see which sentinels still gets the number.
    pub(crate) fn known(&self) -> usize {
        let others = self.details.as_ref().map_or(0, |details| details.number("num-other-sentinels"));
        usize::try_from(others).unwrap_or(0).saturating_add(1)
    }

    /// Reads the replies to [`question`].
    pub(super) fn read(
        replies: &[Result<Value, Failure>],
        servers: &Address,
        sentinel: &Address,
    ) -> SentinelAnswer {
        let reply = |at: usize| {
            let none = || Err(Failure::Broken("no answer".into()));
            replies.get(at).cloned().unwrap_or_else(none)
        };
        SentinelAnswer {
            master: reply(0).and_then(|address| master(&address, servers, sentinel)),
            details: reply(1).map(Details),
            id: reply(2).and_then(|id| text(&id).map(str::to_owned).map_err(|_| unintelligible())),
            run: reply(3).and_then(|info| Run::read(&info)),
            others: reply(4).and_then(|all| others(&all)),
        }
    }

    /// For how long it has been up, in whole seconds.
    pub(crate) fn uptime(&self) -> Result<Duration, &Failure> {
        self.run.as_ref().map(|run| Duration::from_secs(run.uptime))
    }
}

fn master(address: &Value, servers: &Address, sentinel: &Address) -> Result<Address, Failure> {
    if *address == Value::Nil {
        return Err(Failure::refused("NOMASTER", NO_SUCH_MASTER));
    }
    let [host, port] = items(address).map_err(|_| unintelligible())? else { return Err(unintelligible()) };
    let host = text(host).ok().filter(|host| !host.is_empty()).ok_or_else(unintelligible)?;
    let port = number(port).ok().and_then(|port| u16::try_from(port).ok()).ok_or_else(unintelligible)?;
    Ok(servers.announced(host, port, sentinel))
}

fn others(all: &Value) -> Result<Vec<(String, String)>, Failure> {
    Ok(items(all).map_err(|_| unintelligible())?.iter().filter_map(other).collect())
}

fn other(details: &Value) -> Option<(String, String)> {
    let of = |name| text(value_of(details, name)?).ok();
    Some((of("runid")?.to_owned(), format!("{}:{}", of("ip")?, of("port")?)))
}

fn value_of<'v>(details: &'v Value, name: &str) -> Option<&'v Value> {
    let mut pairs = items(details).ok()?.chunks_exact(2);
    pairs.find(|pair| text(&pair[0]).is_ok_and(|field| field == name)).map(|pair| &pair[1])
}

fn unintelligible() -> Failure {
    Failure::Broken("an unintelligible answer of a sentinel".into())
}

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

/// The master as one sentinel names it.
#[derive(Debug)]
pub(super) struct MasterReport {
    pub(super) address: Address,
    /// 0 if the sentinel does not say.
    pub(super) epoch: u64,
    /// How many sentinels this sentinel knows, with itself; and which, if the user may see that.
    sentinels: usize,
    told: Option<BTreeSet<String>>,
    /// The sentinel's id. An old sentinel has only its address.
    id: String,
    /// With a majority.
    run: Option<Run>,
    /// Whether the sentinel has been up for long enough to count.
    is_old: bool,
}

/// The master that counts.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) address: Address,
    pub(super) epoch: u64,
    /// A time before the sentinels were asked: each may name another master right after its answer.
    pub(super) asked: Instant,
    /// With a majority: how many are a majority, and the runs of the sentinels that named the master.
    pub(super) voters: Option<Arc<str>>,
    /// With a majority: the answers that did not come yet.
    pub(super) late: Option<Late>,
}

/// The answers that a decided round still waits for: a sentinel that is far is one of the voters as well.
#[derive(Debug)]
pub(super) struct Late {
    /// With the number of the round.
    answers: Receiver<(usize, Answer)>,
    number: usize,
    round: Round,
}

/// What the sentinels have said in one round, each once.
#[derive(Debug)]
struct Round {
    asked: Instant,
    /// How many answers did not come yet.
    pending: usize,
    reports: Vec<MasterReport>,
}

impl Round {
    fn new(asked: usize) -> Round {
        Round { asked: Instant::now(), pending: asked, reports: Vec::new() }
    }

    /// A sentinel that is configured twice counts once. The answers are in the order of the ids.
    fn hear(&mut self, report: MasterReport) {
        let at = self.reports.binary_search_by(|known| known.id.cmp(&report.id));
        if let Err(at) = at {
            self.reports.insert(at, report);
        }
    }

    /// What a majority says: more than half of `all` sentinels name this master under this epoch. A sentinel that is missing in
    /// the address counts as silent; so does a sentinel that has not been up for the least uptime.
    ///
    /// # Errors
    /// There is no majority.
    fn named(&self, all: usize, least_uptime: Duration) -> Result<Named, Failure> {
        let most_named = self.most_named();
        let Some((report, _)) = most_named.filter(|(_, most)| 2 * most > all) else {
            let most = most_named.map_or(0, |(_, most)| most);
            let mut what = format!("no majority: {most} of {all} sentinels named it");
            let young = self.reports.len() - self.old().count();
            if young > 0 {
                let _ = write!(what, ", and {young} may have forgotten: up for less than {least_uptime:.1?}");
            }
            return Err(Failure::NotSent(what.into()));
        };
        // The same ones are always in the same order.
        let runs = self.old().filter(|other| report.agrees(other));
        let runs = runs.filter_map(|other| other.run.as_ref());
        let voters = runs.fold((all / 2 + 1).to_string(), |voters, run| voters + " " + &run.id);
        let (address, epoch) = (report.address.clone(), report.epoch);
        Ok(Named { address, epoch, asked: self.asked, voters: Some(voters.into()), late: None })
    }

    /// Whether the answers that did not come yet can make a majority.
    fn is_open(&self, all: usize) -> bool {
        let most = self.most_named().map_or(0, |(_, most)| most);
        2 * (most + self.pending) > all
    }

    /// The answers that count.
    fn old(&self) -> impl Iterator<Item = &MasterReport> {
        self.reports.iter().filter(|report| report.is_old)
    }

    /// An answer with which most others agree, and how many do.
    fn most_named(&self) -> Option<(&MasterReport, usize)> {
        let votes = |report: &MasterReport| self.old().filter(|other| report.agrees(other)).count();
        self.old().map(|report| (report, votes(report))).max_by_key(|(_, votes)| *votes)
    }
}

impl MasterReport {
    /// What counts of a sentinel's answer, which tells of its process as well if the sentinel `votes`.
    pub(super) fn of(sentinel: &Address, said: SentinelAnswer, votes: bool) -> Result<MasterReport, Failure> {
        let number = |name| said.details.as_ref().map_or(0, |details| details.number(name));
        let sentinels = said.known();
        let others = said.others.iter().flatten().map(|(id, _)| id);
        let told = said.id.iter().chain(others).cloned().collect::<BTreeSet<_>>();
        Ok(MasterReport {
            epoch: number("config-epoch"),
            address: said.master?,
            sentinels,
            // One that has no right to SENTINEL SENTINELS says only how many there are.
            told: Some(told).filter(|told| told.len() == sentinels && said.id.is_ok()),
            id: said.id.unwrap_or_else(|_| sentinel.to_string()),
            is_old: false,
            run: if votes { Some(said.run?) } else { None },
        })
    }

    fn agrees(&self, other: &MasterReport) -> bool {
        self.epoch == other.epoch && self.address.is_same_server(&other.address)
    }
}

/// How long a sentinel may take to hear of the others after a `SENTINEL RESET`: some times the 2 s after which each announces itself.
const SETTLED: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Electorate {
    /// How many sentinels there are: at least as many as are configured, and as any sentinel has told of.
    count: usize,
    /// The sentinels that count, once a majority has made them fewer.
    members: Option<BTreeSet<String>>,
    /// The sentinels that all answers name, and since when they name the same ones. None if an answer does not say which.
    told: Option<(BTreeSet<String>, Instant)>,
}

impl Electorate {
    pub(super) fn new(configured: usize) -> Electorate {
        Electorate { count: configured, ..Electorate::default() }
    }

    fn count(&self) -> usize {
        self.count
    }

    /// Whether the answer of this sentinel counts. The number of sentinels that it tells of counts in any case.
    fn hear(&mut self, report: &MasterReport, now: Instant) -> bool {
        if self.members.as_ref().is_some_and(|members| !members.contains(&report.id)) {
            return false;
        }
        self.count = self.count.max(report.sentinels);
        let told = self.told.take().filter(|(told, _)| report.told.as_ref() == Some(told));
        self.told = told.or_else(|| Some((report.told.clone()?, now)));
        if report.told.is_some() && self.members.is_some() && self.members != report.told {
            self.members = None;
        }
        true
    }

    /// Called after so many sentinels have answered in a round.
    fn settle(&mut self, answered: usize, now: Instant) {
        let Some((told, since)) = &self.told else { return };
        let is_settled = now.saturating_duration_since(*since) >= SETTLED;
        if is_settled && 2 * answered > self.count && told.len() < self.count {
            (self.count, self.members) = (told.len(), Some(told.clone()));
        }
    }
}

#[cfg(test)]
mod tests;
