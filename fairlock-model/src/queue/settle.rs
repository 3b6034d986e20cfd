//! What a client does about attempts that were never answered. The network may deliver one after its request has ended, as
//! long as its end is not past. So the request is withdrawn once more after that.

use super::bounds::{END, SETTLE};
use super::client::{Client, Phase};
use super::messages::{Answer, Thread, Verb, Word};
use super::rules::Rules;

/// An ended request that must be withdrawn once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owed {
    /// The request.
    pub request: u8,
    /// Ticks until the end of its unanswered attempts, by the client's clock.
    pub left: u8,
    /// The token of a hold that the withdrawal has found, and which is to be released; 0 for none.
    pub token: u8,
}

impl Client {
    /// An attempt of this request, sent `age` ticks ago, will not be answered.
    pub fn unanswered(&mut self, request: u8, age: u8, rules: Rules) {
        let wait = if rules == Rules::WithdrawalWithoutMargin { END } else { SETTLE };
        let left = wait.saturating_sub(age);
        if request == self.request && self.phase != Phase::Idle {
            self.unsure = Some(self.unsure.map_or(left, |known| known.max(left)));
        } else {
            self.owe(request, left, rules);
        }
    }

    /// The server has answered the last command of the request: it was released, or withdrawn.
    pub fn over(&mut self, answer: Answer, rules: Rules) {
        let Phase::Leaving { after_the_end, .. } = self.phase else { return };
        // An attempt may have been carried out before its end, and after the command. And if the hold was gone, it
        // may have been granted another one.
        let is_settled = match rules {
            Rules::EndJudgedByTheAnswer => self.unsure == Some(0) && answer != Answer::NotHeld,
            Rules::AnyReleaseSettles => after_the_end,
            _ => after_the_end && answer != Answer::NotHeld,
        };
        if let Some(left) = self.unsure.filter(|_| !is_settled) {
            self.owe(self.request, left, rules);
        }
        self.end();
    }

    /// The request does not wait any more, and an answer tells of a later grant, or a later place, than the known hold: the known
    /// hold was over when the attempt was carried out.
    pub fn note_another(&mut self, answer: Answer) {
        let token = match self.phase {
            Phase::Held { token, .. } => token,
            Phase::Leaving { word, .. } if word.verb == Verb::Release => word.number,
            _ => return,
        };
        let is_another = match answer {
            Answer::Granted { token: number, .. } => number > token,
            Answer::Queued { latest, .. } => latest >= token,
            _ => false,
        };
        if is_another {
            self.unsure = self.unsure.or(Some(0));
        }
    }

    fn owe(&mut self, request: u8, left: u8, rules: Rules) {
        if rules == Rules::NoWithdrawalAfterTheEnd {
            return;
        }
        match self.owed.iter_mut().find(|owed| owed.request == request) {
            Some(owed) => owed.left = owed.left.max(left),
            None => self.owed.push(Owed { request, left, token: 0 }),
        }
        self.owed.sort_unstable();
    }

    /// The command for an ended request that is due.
    pub fn should_tidy(&self) -> Option<(u8, Word)> {
        let due = self.owed.iter().find(|owed| owed.left == 0 && self.is_free(Thread::Background))?;
        let word = match due.token {
            0 => Word::withdraw(),
            token => Word::new(Verb::Release, token),
        };
        Some((due.request, word))
    }

    /// Handles the answer to it.
    pub fn tidied(&mut self, request: u8, answer: Answer) {
        match answer {
            Answer::TooLate => self.behind = false,
            Answer::Granted { token, .. } => {
                let its = self.owed.iter_mut().filter(|owed| owed.request == request);
                its.for_each(|owed| owed.token = token);
            }
            _ => self.owed.retain(|owed| owed.request != request || owed.left > 0),
        }
    }
}
