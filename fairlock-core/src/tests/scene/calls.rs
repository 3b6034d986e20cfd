//! The callers of a scene: their locks, the calls they make, and what each comes to.

use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use super::super::support::{Running, S, World};
use super::super::tasks::Polled;
use super::told::{Guard, Tell, Told, done, kind_of};
use super::words::{text_of, time_of};
use crate::claim::Claim;
use crate::{AsyncLock, Cancel, OwnedLock, OwnedRequest, Owner};

pub(super) struct Caller {
    lock: Lock,
    name: String,
    owner: Owner,
    pub(super) cancel: Cancel,
    guards: Vec<Guard>,
    request: Option<OwnedRequest>,
    call: Option<Call>,
    claim: Option<Arc<Claim>>,
    /// The last one.
    pub(super) error: String,
}

#[derive(Clone)]
enum Lock {
    /// Made after the client's end, which gives out no lock.
    Ended,
    OfThread(OwnedLock),
    OfTask(AsyncLock),
}

enum Call {
    Runs(Running<Told>),
    Waits(Polled<Told>, Instant),
    Over(String),
}

impl Caller {
    pub(super) fn new(world: &World, who: &str, is_task: bool, first: Option<&Caller>) -> Caller {
        let name = who.split('@').next_back().unwrap().to_owned();
        let owner = first.map_or_else(|| world.client.new_owner(), |first| first.owner.clone());
        let lock = match (first, world.client.fair_lock(&name)) {
            (Some(first), _) => first.lock.clone(),
            (None, Ok(fair)) if is_task => Lock::OfTask(fair.to_async()),
            (None, Ok(fair)) => Lock::OfThread(fair.owned_by(&owner).unwrap()),
            (None, Err(_)) => Lock::Ended,
        };
        let name = first.map_or(name, |first| first.name.clone());
        let (cancel, guards, error) = (Cancel::new(), Vec::new(), String::new());
        Caller { lock, name, owner, cancel, guards, request: None, call: None, claim: None, error }
    }

    /// Another kind of lock, or other terms.
    pub(super) fn is(&mut self, world: &World, kind: &[&str]) {
        if let (["plain"], Lock::OfTask(_)) = (kind, &self.lock) {
            self.lock = Lock::OfTask(world.client.plain_lock(&self.name).unwrap().to_async());
            return;
        }
        if let (["cancellable"], Lock::OfTask(_)) = (kind, &self.lock) {
            let fair = world.client.fair_lock(&self.name).unwrap();
            self.lock = Lock::OfTask(fair.cancelled_by(&self.cancel).to_async());
            return;
        }
        let Lock::OfThread(lock) = &self.lock else { panic!("it is a task already") };
        self.lock = match *kind {
            ["task"] => Lock::OfTask(lock.to_async()),
            ["plain"] => {
                let plain = world.client.plain_lock(&self.name).unwrap();
                Lock::OfThread(plain.owned_by(&self.owner).unwrap())
            }
            ["fixed", time] => Lock::OfThread(lock.fixed_lease(time_of(time))),
            ["capped", time] => Lock::OfThread(lock.max_hold(time_of(time))),
            ["cancellable"] => Lock::OfThread(lock.cancelled_by(&self.cancel)),
            _ => panic!("no lock is {kind:?}"),
        };
    }

    /// Its claim stays known when it is over. One that has asked for nothing stands for another owner's claim.
    pub(super) fn learn(&mut self, world: &World) {
        let is_its =
            |claim: &Claim| !matches!(self.lock, Lock::OfThread(_)) || claim.owner == *self.owner.id();
        let find = |is_it: &dyn Fn(&Claim) -> bool| world.shared.ledger.registry.any(&self.name, is_it);
        if let Some(claim) = find(&is_its).or_else(|| find(&|_| self.claim.is_none())) {
            self.claim = Some(claim);
        }
    }

    pub(super) fn claim(&self) -> &Arc<Claim> {
        self.claim.as_ref().expect("it has asked for its lock")
    }

    pub(super) fn token(&self) -> u64 {
        match self.guards.last().expect("it has a guard") {
            Guard::OfThread(guard) => guard.token().get(),
            Guard::OfTask(guard) => guard.token().get(),
        }
    }

    /// What nobody has asked for: a call that goes on, and a result that is no success.
    pub(super) fn untold(&self) -> Option<String> {
        match self.call.as_ref()? {
            Call::Over(text) if ["done", "gets", "gets-all", "asks"].contains(&text.split(' ').next()?) => {
                None
            }
            Call::Over(text) => Some(text.clone()),
            Call::Runs(_) | Call::Waits(..) => Some("it goes on".to_owned()),
        }
    }

    /// What it sees of its lock, its last guard or its request.
    pub(super) fn seen(&self, what: &str) -> Option<String> {
        let is_lost = || match self.guards.last().expect("it has a guard") {
            Guard::OfThread(guard) => guard.is_lost(),
            Guard::OfTask(guard) => guard.is_lost(),
        };
        let of = |word: &str, value: String| Some(format!("{word} {value}"));
        match what {
            "holds" => match &self.lock {
                Lock::OfThread(lock) => of(what, lock.hold_count().to_string()),
                Lock::OfTask(_) | Lock::Ended => panic!("no thread holds it"),
            },
            "token" => of(what, self.token().to_string()),
            "is-held" | "is-lost" => Some(if is_lost() { "is-lost" } else { "is-held" }.to_owned()),
            "check" => {
                let checked = match self.guards.last().expect("it has a guard") {
                    Guard::OfThread(guard) => guard.check(),
                    Guard::OfTask(guard) => guard.check(),
                };
                of(what, checked.map_or_else(|error| kind_of(&error), |()| "ok".to_owned()))
            }
            "valid" => match self.guards.last() {
                Some(Guard::OfThread(guard)) => of(what, text_of(guard.valid_for())),
                Some(Guard::OfTask(guard)) => of(what, text_of(guard.valid_for())),
                None => panic!("it has no guard"),
            },
            "hears" => match self.guards.last() {
                Some(Guard::OfThread(guard)) => {
                    let heard = guard.lost().try_recv();
                    of(what, heard.map_or_else(|_| "nothing".to_owned(), |lost| format!("{:?}", lost.cause)))
                }
                _ => panic!("no thread has a guard"),
            },
            "rank" => {
                let rank = self.request.as_ref().expect("it has a request").rank();
                of(what, rank.map_or_else(|| "none".to_owned(), |rank| rank.to_string()))
            }
            "decided" | "pending" => {
                let is_decided = match (&self.request, &self.call) {
                    (Some(request), _) => request.decided().try_recv().is_ok(),
                    (None, Some(Call::Waits(task, _))) => task.woken() > 0,
                    _ => panic!("nothing waits"),
                };
                Some(if is_decided { "decided" } else { "pending" }.to_owned())
            }
            "is-asking" => Some(if self.claim().is_asking() { what } else { "asks not" }.to_owned()),
            "is-renewing" => Some(if self.claim().is_renewing() { what } else { "renews not" }.to_owned()),
            _ => None,
        }
    }

    /// Begins a call, or tells what the one has come to that goes on.
    pub(super) fn call(&mut self, world: &World, words: &[&str]) -> String {
        let (verb, rest) = (words[0], &words[1..]);
        if let Some(Call::Waits(task, _)) = &mut self.call {
            match verb {
                "drops" => self.call = None, // its future
                "polls" => {
                    return match world.before_the_answer(|| task.poll()) {
                        Poll::Pending => "polls pending".to_owned(),
                        Poll::Ready(told) => {
                            self.call = None;
                            format!("polls {}", self.take(told, Duration::ZERO))
                        }
                    };
                }
                _ if task.woken() > 0 => self.call = Some(Call::Over(self.finished(world))),
                _ => {}
            }
            if verb == "drops" {
                return verb.to_owned();
            }
        }
        if is_result(verb) {
            return self.finished(world);
        }
        let (argument, rest) = if takes_argument(verb) { (rest[0], &rest[1..]) } else { ("", rest) };
        self.begin(world, verb, argument);
        let begun = words[..words.len() - rest.len()].join(" ");
        if !rest.is_empty() {
            return format!("{begun} {}", self.finished(world));
        }
        if let Some(Call::Runs(running)) = &self.call
            && let Some((told, took)) = running.is_over()
        {
            let text = self.take(told, took);
            self.call = Some(Call::Over(text));
        }
        begun
    }

    fn begin(&mut self, world: &World, verb: &str, argument: &str) {
        assert_eq!(self.untold(), None, "nobody has asked what came of the last call");
        let (client, names) =
            (world.client.clone(), argument.split(',').map(str::to_owned).collect::<Vec<_>>());
        let is_time = !argument.is_empty() && !verb.contains("-all");
        let time = if is_time { time_of(argument) } else { Duration::ZERO };
        let task = match (&self.lock, verb) {
            (Lock::OfTask(lock), "locks") => Some(task(lock.lock())),
            (Lock::OfTask(lock), "tries") => Some(task(lock.try_lock())),
            (Lock::OfTask(lock), "tries-for") => Some(task(lock.try_lock_for(time))),
            (Lock::OfTask(_), "listens") => match self.guards.last() {
                Some(Guard::OfTask(guard)) => Some(task(guard.lost())),
                _ => panic!("it has no guard"),
            },
            (Lock::OfTask(_), "unlocks") => match self.guards.pop() {
                Some(Guard::OfTask(guard)) => Some(task(guard.unlock())),
                _ => panic!("it has no guard"),
            },
            _ => None,
        };
        if let Some(future) = task {
            let began = world.clock.now();
            let mut polled = Polled::new(future);
            let first = world.before_the_answer(|| polled.poll());
            self.call = Some(match first {
                Poll::Pending => Call::Waits(polled, began),
                Poll::Ready(told) => Call::Over(format!("at-once {}", self.take(told, Duration::ZERO))),
            });
            world.settle();
            return;
        }
        let lock = match &self.lock {
            Lock::OfThread(lock) => Some(lock.clone()),
            Lock::OfTask(_) | Lock::Ended => None,
        };
        let lock = move || lock.expect("only a thread makes this call");
        let running = match verb {
            "locks" => world.begin(move || lock().lock().told()),
            "tries" => world.begin(move || lock().try_lock().told()),
            "tries-for" => world.begin(move || lock().try_lock_for(time).told()),
            "requests" => world.begin(move || lock().request().told()),
            "unleaks" => world.begin(move || lock().unlock().told()),
            "shuts-down" => world.begin(move || client.shutdown().told()),
            "shuts-down-within" => world.begin(move || client.shutdown_within(time).told()),
            "locks-all" => world.begin(move || client.lock_all(&names).told()),
            "tries-all" => world.begin(move || client.try_lock_all(&names).told()),
            "tries-all-for-5s" => world.begin(move || client.try_lock_all_for(&names, 5 * S).told()),
            "drains" => world.begin(move || client.drain(time).told()),
            "waits" | "waits-for" | "leaves" => {
                let mut request = self.request.take().expect("it has a request");
                match verb {
                    "waits" => world.begin(move || request.wait().told()),
                    "leaves" => world.begin(move || request.leave().told()),
                    _ => world.begin(move || {
                        let told = request.wait_for(time).told();
                        Told { request: Some(request), ..told }
                    }),
                }
            }
            "drops" if self.guards.is_empty() => {
                let request = self.request.take().expect("it has something to drop");
                world.begin(move || {
                    drop(request);
                    done()
                })
            }
            "drops" => {
                let guard = self.guards.pop();
                world.begin(move || {
                    drop(guard);
                    done()
                })
            }
            "unlocks" | "keeps" | "leaks" | "renews" => {
                let Some(Guard::OfThread(guard)) = self.guards.pop() else { panic!("it has no guard") };
                let kept = |told, guard| Told { guard: Some(Guard::OfThread(guard)), ..told };
                match verb {
                    "unlocks" => world.begin(move || guard.unlock().told()),
                    "keeps" => world.begin(move || guard.keep_for(time).told()),
                    "leaks" => world.begin(move || {
                        guard.leak();
                        done()
                    }),
                    _ => world.begin(move || kept(guard.renew().told(), guard)),
                }
            }
            _ => panic!("no verb: {verb}"),
        };
        self.call = Some(Call::Runs(running));
    }

    /// Moves the clock until the call has ended, and says what it came to.
    fn finished(&mut self, world: &World) -> String {
        match self.call.take().expect("it has made a call") {
            Call::Over(text) => text,
            Call::Runs(running) => {
                let (told, took) = world.finish(&running);
                self.take(told, took)
            }
            Call::Waits(task, began) => {
                let limit = began + 1000 * S;
                while task.woken() == 0 && world.clock.now() < limit {
                    world.clock.step(limit - world.clock.now());
                }
                self.take(task.ended(), world.clock.now() - began)
            }
        }
    }

    fn take(&mut self, told: Told, took: Duration) -> String {
        self.guards.extend(told.guard);
        self.request = told.request.or(self.request.take());
        if !told.error.is_empty() {
            self.error = told.error;
        }
        format!("{} {}", told.text, text_of(took))
    }
}

fn task<T: Tell>(
    future: impl Future<Output = T> + Send + 'static,
) -> std::pin::Pin<Box<dyn Future<Output = Told> + Send>> {
    Box::pin(async move { future.await.told() })
}

fn takes_argument(verb: &str) -> bool {
    let takes_time = ["tries-for", "waits-for", "keeps", "shuts-down-within", "drains"];
    takes_time.contains(&verb) || verb.contains("-all")
}

fn is_result(verb: &str) -> bool {
    ["gets", "gets-all", "is-busy", "done", "asks", "sure", "lost", "fails", "drained", "at-once"]
        .contains(&verb)
}
