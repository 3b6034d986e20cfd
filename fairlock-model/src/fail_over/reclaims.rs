//! Renewals and reclaims of holds: the scripts `hand_off/reclaim.lua`, `hand_off/renew_holds.lua`.
//!
//! If a reclaim does not fit, other holds give way. If the reclaim or the hold takes all units, the later of the two stays. Among
//! holds of a part, the unheard ones give way, the oldest first, until the reclaim fits: an unheard hold comes from an old file, or
//! its holder lives and will reclaim in this grace. A hold that was heard in this grace is live, and live holds fit beside each
//! other. Only a renewal sent in this life counts as heard.

use super::bounds::Bounds;
use super::data::{Data, Entry, Life, add, remove};
use super::rules::Rules;
use super::server::Answer;
use super::state::{Event, State};

impl Bounds {
    /// Renews a hold, `end` before it may not be reclaimed any more; in a grace it is reclaimed.
    pub fn renew(&self, state: &mut State, at: usize, hold: Entry, end: u8) -> Answer {
        let data = &mut state.servers[at].data;
        let left = self.times.lease + self.times.extra;
        let in_grace = data.is_in_grace();
        let heard = data.life.is_some_and(|life| self.is_heard(life, hold, end));
        if let Some(found) = data.holds.iter_mut().find(|found| found.number == hold.number) {
            found.left = found.left.max(left);
            found.heard |= heard && self.rules != Rules::RenewalsAreNotHeard;
            return Answer::Renewed;
        }
        if end == 0 && self.rules != Rules::NoEndOfAReclaim {
            return Answer::None;
        }
        let may_reclaim = in_grace || self.rules == Rules::ReclaimsAfterTheGrace;
        let is_over = data.ended.has(hold.number) && self.rules != Rules::EndedIsForgotten;
        let before = data.holds;
        if !may_reclaim || is_over || !self.make_room(data, hold) {
            return Answer::Lost;
        }
        let was_released = data.released & (1 << hold.number) != 0;
        let was_forced = hold.number <= data.forced;
        remove(&mut data.places, |place| place.is_of(hold));
        add(&mut data.holds, Entry { left, heard, ..hold });
        let both_heard = data.holds.iter().filter(|hold| hold.heard).count() > 1;
        let after = data.holds;
        state.came_back |= was_released;
        state.undone |= was_forced;
        if both_heard {
            state.happened(Event::ReclaimedTogether);
        }
        let gave_way = before.into_iter().filter(|hold| after.iter().all(|left| left.number != hold.number));
        let is_live = |hold: Entry| state.clients[usize::from(hold.client)].believes_in(hold.number);
        if gave_way.into_iter().any(is_live) {
            state.happened(Event::LiveGaveWay);
        }
        Answer::Renewed
    }

    /// Whether a renewal shows that its holder lives: it was sent in this life, and has not ended. One that was sent in the tick in
    /// which the life began may have been sent before.
    fn is_heard(&self, life: Life, hold: Entry, end: u8) -> bool {
        let (sent, began) = (self.times.end - end, self.times.grace - life.left);
        let is_always = matches!(self.rules, Rules::LateReclaimsAreHeard | Rules::HeardStaysBesideAll);
        let is_read = self.takes_part(hold) || self.rules == Rules::HeardStaysBesideAll;
        life.left > 0 && is_read && (is_always || sent < began && end > 0)
    }

    /// Drops the holds that have to give way to a reclaim; or none, if it does not fit all the same.
    fn make_room(&self, data: &mut Data, hold: Entry) -> bool {
        let mut left = *data;
        remove(&mut left.holds, |other| other.is_of(hold)); // the request itself may have had an earlier one
        for other in data.holds.into_iter().filter(|other| other.number > 0) {
            if !self.fits(&left, hold) && self.gives_way(other, hold) {
                remove(&mut left.holds, |hold| hold == other);
            }
        }
        let fits = self.fits(&left, hold);
        if fits {
            *data = left;
        }
        fits
    }

    fn gives_way(&self, other: Entry, hold: Entry) -> bool {
        let is_older = other.number < hold.number;
        if self.takes_part(other) && self.takes_part(hold) {
            return match self.rules {
                Rules::ReclaimsByToken => is_older,
                Rules::HeardGivesWay => true,
                _ => !other.heard,
            };
        }
        match self.rules {
            Rules::ReclaimsInAnyOrder => true,
            Rules::HeardStaysBesideAll => is_older && !other.heard,
            _ => is_older,
        }
    }
}
