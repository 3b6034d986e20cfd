//! Which pages of the table this process sweeps next, and when.

use std::time::{Duration, Instant};

use fairlock_core::ClientId;

use crate::presence::key_of;

/// How long a look at the whole table takes at least, and a new client waits before its first window.
pub(crate) const EVERY: Duration = Duration::from_secs(600);
/// Between two windows at least.
const SOON: Duration = Duration::from_secs(1);
/// A window, as `sweep` reads it: about 560 rows. So one process keeps up with many million names a day.
const PAGES: u64 = 16;

pub(crate) struct Sweeper {
    pub(crate) next: Instant,
    /// The number of the next window, in a table without end: of many processes each begins anywhere.
    window: u64,
    /// How many windows the table had.
    windows: u64,
}

impl Sweeper {
    pub(crate) fn new() -> Sweeper {
        let anywhere = key_of(&ClientId::random().to_string());
        Sweeper { next: Instant::now() + EVERY, window: anywhere.cast_unsigned() >> 16, windows: 1 }
    }

    /// Takes the next window, and returns its first page.
    pub(crate) fn window(&mut self) -> u64 {
        let window = self.window % self.windows;
        self.window += 1;
        window * PAGES
    }

    /// Takes note of the table's number of pages. Returns how long it is until the next window.
    pub(crate) fn pause(&mut self, pages: u64) -> Duration {
        self.windows = pages.div_ceil(PAGES).max(1);
        (EVERY / u32::try_from(self.windows).unwrap_or(u32::MAX)).max(SOON)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_table_is_seen_in_ten_minutes_or_a_window_a_second() {
        let mut sweeper = Sweeper::new();
        for (pages, pause) in [(0, 600), (16, 600), (17, 300), (160, 60), (57_143, 1)] {
            assert_eq!(sweeper.pause(pages), Duration::from_secs(pause), "{pages}");
        }
        let mut seen = vec![false; 57_143];
        for _ in 0..3572 {
            let page = usize::try_from(sweeper.window()).unwrap();
            seen.iter_mut().skip(page).take(16).for_each(|seen| *seen = true);
        }
        assert!(seen.into_iter().all(|seen| seen));
    }
}
