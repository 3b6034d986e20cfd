//! A screen of a terminal that is drawn again after each look: its columns stay in place, and rows that have changed are marked.
//!
//! The main thread looks. The thread `fairlock-screen` draws, and hears signals: a look at a store that does not answer keeps neither.
//! The terminal is given back by the end of that thread, before a signal ends or stops the process, and before a failure is said; a panic
//! is such a failure.
//! Only a terminal that takes nothing, not even that for a second, is left as it is.

use std::collections::HashMap;
use std::io::{IsTerminal, Write, stdout};
use std::iter::once;
use std::panic::{self, AssertUnwindSafe};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::waits::crossbeam_channel_0_5::{Receiver, Sender, bounded, select, tick, unbounded};
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{getpgrp, tcgetpgrp};
use signal_hook::consts::{SIGTSTP, SIGWINCH};
use signal_hook::low_level::emulate_default_handler;
use terminal_size::{Height, Width, terminal_size_of};

use crate::process::{ENDS, Exit, Failure, Reader, die_by, end_by_signals_no_more, hear, print, printed};
use crate::words::{columns, duration, escaped, fit_name, fit_words, fitting};

/// Writes what `look` returns: once, or once every interval until that fails or nobody reads it. `picture`: for a screen, if it is not
/// to be JSON.
pub(crate) fn watch<T>(
    every: Option<Duration>,
    mut look: impl FnMut() -> Result<T, Failure>,
    text: impl Fn(&T) -> String,
    picture: Option<impl Fn(&T) -> Picture>,
) -> Result<Exit, Failure> {
    let every = every.map(|every| every.max(Duration::from_millis(100)));
    match (every, picture) {
        (Some(every), Some(picture)) if stdout().is_terminal() => {
            return show(every, || look().map(|seen| picture(&seen)));
        }
        _ => {}
    }
    loop {
        let reader = print(&text(&look()?))?;
        match every {
            Some(pause) if reader == Reader::There => thread::sleep(pause),
            _ => return Ok(Exit::Done),
        }
    }
}

/// What is shown of one look.
#[derive(Default)]
pub(crate) struct Picture {
    pub(crate) head: String,
    /// Lines, which are wrapped; or a table.
    pub(crate) text: Vec<String>,
    /// Titles and widths. Columns of width 0 share what is left.
    pub(crate) columns: &'static [(&'static str, usize)],
    pub(crate) rows: Vec<Row>,
    /// How many rows were not read.
    pub(crate) more: u64,
}

#[derive(Default)]
pub(crate) struct Row {
    /// What the row is about, and the state in which it was seen: a row is marked when the state is another one.
    pub(crate) key: String,
    pub(crate) state: String,
    pub(crate) cells: Vec<String>,
}

/// Titles and rows as lines, with columns as wide as they need. Nothing is cut: a program may read it.
pub(crate) fn table(titles: &[(&str, usize)], rows: &[Row]) -> String {
    let head: Vec<&str> = titles.iter().map(|(title, _)| *title).collect();
    let lines: Vec<Vec<&str>> =
        once(head).chain(rows.iter().map(|row| row.cells.iter().map(String::as_str).collect())).collect();
    let widest = |at: usize| lines.iter().map(|cells| columns(cells[at])).max().unwrap_or(0);
    let widths: Vec<usize> = (0..titles.len()).map(widest).collect();
    let mut text = String::new();
    for cells in &lines {
        let mut line = String::new();
        for ((cell, wide), (_, width)) in cells.iter().zip(&widths).zip(titles) {
            let pad = " ".repeat(wide - columns(cell));
            line += &if *width == 0 { format!("{cell}{pad}  ") } else { format!("{pad}{cell}  ") };
        }
        text = text + line.trim_end() + "\n";
    }
    text
}

/// A picture, or why there is none; and how long until the next look.
type Look = (Result<Picture, Failure>, Duration);

/// Looks and draws, until a signal ends the command or a look fails for another reason than a store that is away.
///
/// # Errors
/// The failure of a look, or of a write to the terminal.
fn show(every: Duration, mut look: impl FnMut() -> Result<Picture, Failure>) -> Result<Exit, Failure> {
    let (first, took) = timed(&mut look);
    let first = first?;
    let (say, signals) = unbounded();
    hear(ENDS.into_iter().chain([SIGTSTP, SIGWINCH]), move |signal| {
        let _ = say.send(signal);
        if ENDS.contains(&signal) {
            thread::sleep(Duration::from_secs(1)); // as a rule the other thread ends the process meanwhile
            std::process::exit(die_by(signal).code().into());
        }
        Ok::<(), Failure>(())
    })?;
    end_by_signals_no_more();
    log::set_max_level(log::LevelFilter::Off); // lines would stand in the picture
    let (say, panicked) = unbounded();
    panic::set_hook(Box::new(move |panic| drop(say.send(panic.to_string())))); // its words would go with the screen
    let (tell, told) = bounded(1);
    let work = || {
        thread::scope(|scope| {
            let drawer = thread::Builder::new().name("fairlock-screen".to_owned());
            let drawer = drawer.spawn_scoped(scope, move || draw(&told, &signals));
            let drawer = drawer.map_err(|error| Failure::ours(format!("no thread: {error}")))?;
            let looked = go_on(every, look, first, took, tell);
            let drawn = drawer.join().unwrap_or_else(|panic| panic::resume_unwind(panic));
            looked?;
            printed(drawn).map(|_| Exit::Done)
        })
    };
    let ended = panic::catch_unwind(AssertUnwindSafe(work));
    ended.unwrap_or_else(|_| Err(Failure::ours(panicked.try_iter().collect::<Vec<_>>().join("\n"))))
}

/// Returns when the other thread draws no more.
fn go_on(
    every: Duration,
    mut look: impl FnMut() -> Result<Picture, Failure>,
    first: Picture,
    mut former: Duration,
    tell: Sender<Look>,
) -> Result<(), Failure> {
    let (mut seen, mut took) = (Ok(first), former);
    loop {
        // Looks take a tenth of the time at most, however many locks there are. A single slow look has met an outage: it does not count.
        let pause = if seen.is_ok() { every.max(took.min(former) * 9) } else { every };
        if tell.send((seen, pause)).is_err() {
            return Ok(());
        }
        thread::sleep(pause);
        former = took;
        (seen, took) = timed(&mut look);
        if let Err(failure) = seen.as_ref()
            && failure.exit != Exit::Unavailable
        {
            return seen.map(drop);
        }
    }
}

fn timed<T>(look: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    (look(), began.elapsed())
}

fn draw(told: &Receiver<Look>, signals: &Receiver<i32>) -> std::io::Result<()> {
    let (mut shown, mut terminal) = (Shown::default(), Terminal(None));
    let seconds = tick(Duration::from_secs(1)); // how long no answer has come
    loop {
        select! {
            recv(told) -> look => match look {
                Ok(look) => shown.take(look),
                Err(_) => return Ok(()),
            },
            recv(signals) -> signal => match signal {
                Ok(SIGWINCH) => {}
                Err(_) => return Ok(()),
                Ok(SIGTSTP) => {
                    terminal.leave();
                    let _ = emulate_default_handler(SIGTSTP); // returns when the process continues
                }
                Ok(signal) => {
                    terminal.leave();
                    std::process::exit(die_by(signal).code().into());
                }
            },
            recv(seconds) -> _ => {}
        }
        terminal.draw(|width, height| shown.lines(width, height))?;
    }
}

/// The last picture, and what has come since.
#[derive(Default)]
struct Shown {
    picture: Picture,
    /// The rows that have changed, and the names in those that are gone.
    changed: Vec<bool>,
    gone: Vec<String>,
    seen_at: Option<Instant>,
    pause: Duration,
    failure: Option<String>,
}

impl Shown {
    fn take(&mut self, (seen, pause): Look) {
        let picture = match seen {
            Ok(picture) => picture,
            Err(failure) => return self.failure = Some(failure.message),
        };
        let is_first = self.seen_at.is_none();
        let mut former: HashMap<&str, &Row> =
            self.picture.rows.iter().map(|row| (row.key.as_str(), row)).collect();
        let is_new =
            |row: &Row| former.remove(row.key.as_str()).is_none_or(|former| former.state != row.state);
        self.changed = picture.rows.iter().map(is_new).map(|is_new| is_new && !is_first).collect();
        self.gone = former.values().filter_map(|row| row.cells.first().cloned()).collect();
        self.gone.sort();
        (self.picture, self.pause, self.seen_at, self.failure) = (picture, pause, Some(Instant::now()), None);
    }

    /// The lines of a screen; each is shorter than the screen is wide, so that none is continued.
    fn lines(&self, screen: usize, height: usize) -> Vec<String> {
        let Picture { head, text, columns, rows, more } = &self.picture;
        let width = screen.max(20) - 1;
        let mut lines = vec![format!("{head}; every {}", duration(self.pause)), self.note()];
        lines.iter_mut().for_each(|line| *line = fit_words(&escaped(line), width));
        let text: Vec<String> = text.iter().flat_map(|line| wrapped(line, width)).collect();
        if !columns.is_empty() {
            let titles = columns.iter().map(|(title, _)| *title);
            lines.push(line(false, titles, columns, width));
        }
        let room = height.saturating_sub(lines.len());
        let total = text.len() + rows.len();
        let shown = if total <= room && *more == 0 { total } else { room.saturating_sub(1).min(total) };
        let table = rows.iter().zip(&self.changed);
        let table =
            table.map(|(row, changed)| line(*changed, row.cells.iter().map(String::as_str), columns, width));
        lines.extend(text.iter().cloned().chain(table).take(shown));
        match (total - shown) as u64 + more {
            0 => {}
            left_out => lines.push(format!("… and {left_out} more")),
        }
        lines.truncate(height);
        lines.iter_mut().for_each(|line| *line = fitting(line.chars(), screen.saturating_sub(1)));
        lines
    }

    fn note(&self) -> String {
        let silent = self.seen_at.map_or(Duration::ZERO, |at| at.elapsed().saturating_sub(self.pause));
        match &self.failure {
            Some(failure) => format!("no answer for {}: {failure}", duration(silent)),
            None if silent >= Duration::from_secs(2) => format!("no answer for {}", duration(silent)),
            None if self.gone.is_empty() => String::new(),
            None => format!("gone: {}", self.gone.join(", ")),
        }
    }
}

/// One row: its mark, and its cells, each as wide as its column.
fn line<'a>(
    changed: bool,
    cells: impl Iterator<Item = &'a str>,
    widths: &[(&str, usize)],
    width: usize,
) -> String {
    let fixed: usize = widths.iter().map(|(_, width)| width + 1).sum();
    let shared = widths.iter().filter(|(_, width)| *width == 0).count().max(1);
    let share = (width.saturating_sub(fixed + 1) / shared).clamp(8, 60);
    let mut line = if changed { "*" } else { " " }.to_owned();
    for (cell, (_, width)) in cells.zip(widths) {
        let cell = fit_name(cell, if *width == 0 { share } else { *width });
        let pad = |width: usize| " ".repeat(width - columns(&cell));
        line += &match width {
            0 => format!(" {cell}{}", pad(share)),
            width => format!(" {}{cell}", pad(*width)),
        };
    }
    fitting(line.trim_end().chars(), width)
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let (mut rest, mut lines) = (text, Vec::new());
    loop {
        let line = fitting(rest.chars(), width);
        rest = &rest[line.len()..];
        lines.push(line);
        if rest.is_empty() {
            return lines;
        }
    }
}

/// The terminal. While it shows the screen, its former settings.
struct Terminal(Option<Termios>);

impl Terminal {
    /// Nothing in the background: there the terminal is another process's.
    fn draw(&mut self, lines: impl FnOnce(usize, usize) -> Vec<String>) -> std::io::Result<()> {
        if is_in_background() {
            return Ok(());
        }
        let mut frame = String::from("\x1b[H");
        if self.0.is_none() {
            let former = tcgetattr(stdout())?;
            let mut settings = former.clone();
            settings.local_flags.remove(LocalFlags::ECHO); // keys would stand in the picture
            tcsetattr(stdout(), SetArg::TCSADRAIN, &settings)?;
            self.0 = Some(former);
            frame.insert_str(0, "\x1b[?1049h\x1b[?25l"); // the other screen, without a cursor
        }
        let size =
            terminal_size_of(stdout()).filter(|(Width(width), Height(height))| *width > 0 && *height > 0);
        let (width, height) = size.map_or((80, 24), |(width, height)| (width.0.into(), height.0.into()));
        for (at, line) in lines(width, height).iter().enumerate() {
            let (bold, plain) = if line.starts_with('*') { ("\x1b[1m", "\x1b[m") } else { ("", "") };
            let next = if at == 0 { "" } else { "\r\n" };
            frame += &format!("{next}{bold}{line}{plain}\x1b[K");
        }
        stdout().write_all((frame + "\x1b[J").as_bytes())?;
        stdout().flush()
    }

    /// Gives the terminal back as it was. After a STOP it may have the settings of another process, and to set them would stop this one.
    fn leave(&mut self) {
        if let Some(former) = self.0.take() {
            let _ = stdout().write_all(b"\x1b[?25h\x1b[?1049l").and_then(|()| stdout().flush());
            if !is_in_background() {
                let _ = tcsetattr(stdout(), SetArg::TCSAFLUSH, &former);
            }
        }
    }
}

fn is_in_background() -> bool {
    tcgetpgrp(stdout()).is_ok_and(|group| group != getpgrp())
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [(&str, usize); 4] = [("LOCK", 0), ("HELD BY", 0), ("FOR", 6), ("WAITING", 7)];

    /// A picture of locks; each is a name, a holder and how many wait.
    fn picture(locks: &[(&str, &str, &str)]) -> Picture {
        let row = |(name, holder, waiting): &(&str, &str, &str)| Row {
            key: (*name).to_owned(),
            state: format!("{holder} {waiting}"),
            cells: [*name, *holder, "3.9s", *waiting].map(escaped).to_vec(),
        };
        let rows = locks.iter().map(row).collect();
        Picture { head: "some locks".to_owned(), columns: &COLUMNS, rows, ..Picture::default() }
    }

    fn shown(looks: &[&[(&str, &str, &str)]]) -> Shown {
        let mut shown = Shown::default();
        looks.iter().for_each(|locks| shown.take((Ok(picture(locks)), Duration::from_secs(1))));
        shown
    }

    #[test]
    fn columns_stay_in_place_whatever_the_names_are() {
        let long = "a".repeat(300);
        let names =
            ["orders", "夜間の仕事夜間の仕事夜間の仕事夜間の仕事", "\u{1b}[2J\u{202e}\n", "e\u{301}", &long];
        for width in [30, 80, 200] {
            let locks = names.map(|name| (name, name, "3"));
            let lines = shown(&[&locks]).lines(width, 24);
            assert_eq!((lines[0].as_str(), lines.len()), ("some locks; every 1.0s", 8));
            let ends: Vec<usize> = lines[2..].iter().map(|line| columns(line)).collect();
            assert!(ends.iter().all(|end| *end == ends[0] && *end < width), "{lines:#?}");
            assert!(!lines.concat().contains(['\u{1b}', '\u{202e}', '\n']), "{lines:#?}");
        }
    }

    #[test]
    fn names_share_what_the_other_columns_leave() {
        let lines = shown(&[&[("orders", "a", "3")], &[("orders", "b", "12")]]).lines(50, 24);
        let [titles, row] = &lines[2..] else { panic!("{lines:#?}") };
        assert_eq!(titles, "  LOCK            HELD BY            FOR WAITING");
        assert_eq!(row, "* orders          b                 3.9s      12");
    }

    #[test]
    fn no_line_is_continued_on_a_tiny_screen() {
        for (width, height) in [(3, 5), (1, 1), (2, 40), (19, 3)] {
            let lines = shown(&[&[("夜間の仕事", "orders", "3")]]).lines(width, height);
            assert!(lines.len() <= height && lines.iter().all(|line| columns(line) < width), "{lines:#?}");
        }
    }

    /// For a program that reads it: the end of a name may not be missing.
    #[test]
    fn a_table_is_as_wide_as_its_longest_cells() {
        let long = "a".repeat(100);
        let rows = picture(&[("orders", "me", "3"), (&long, "夜間", "12")]).rows;
        let pad = " ".repeat(94);
        let text = format!(
            "LOCK{}  HELD BY   FOR  WAITING\norders{pad}  me       3.9s        3\n{long}  夜間     3.9s       12\n",
            " ".repeat(96)
        );
        assert_eq!(table(&COLUMNS, &rows), text);
    }

    #[test]
    fn what_has_changed_is_marked_until_the_next_look() {
        let first = [("a", "x", "0"), ("b", "x", "0"), ("c", "x", "0")];
        let second = [("a", "x", "0"), ("b", "y", "0"), ("d", "x", "0")];
        let marks = |looks: &[&[_]]| {
            let lines = shown(looks).lines(80, 24);
            (lines[1].clone(), lines[3..].iter().map(|line| line[..3].to_owned()).collect::<Vec<_>>())
        };
        let of = |note: &str, rows: [&str; 3]| (note.to_owned(), rows.map(str::to_owned).to_vec());
        assert_eq!(marks(&[&first]), of("", ["  a", "  b", "  c"]));
        assert_eq!(marks(&[&first, &second]), of("gone: c", ["  a", "* b", "* d"]));
        assert_eq!(marks(&[&first, &second, &second]), of("", ["  a", "  b", "  d"]));
    }

    #[test]
    fn rows_without_room_are_counted() {
        let names: Vec<String> = (0..10_000).map(|n| format!("lock:{n}")).collect();
        let locks: Vec<_> = names.iter().map(|name| (name.as_str(), "x", "0")).collect();
        for (height, last) in
            [(24, "… and 9980 more"), (4, "… and 10000 more"), (3, "LOCK"), (1, "some locks;")]
        {
            let lines = shown(&[&locks]).lines(80, height);
            let end = lines.last().unwrap();
            assert!(lines.len() == height && end.trim_start().starts_with(last), "{height}: {lines:#?}");
        }
        let mut all = shown(&[&locks[..21]]);
        assert!(all.lines(80, 24)[23].starts_with("  lock:20 "));
        all.picture.more = 5;
        assert_eq!(all.lines(80, 24)[23], "… and 6 more");
    }

    /// A panic of either thread is said when the terminal was given back, and is a failure. This test is the command as well: it starts itself
    /// at a terminal.
    #[test]
    fn a_panic_is_said_after_the_screen() {
        const ROLE: &str = "FAIRLOCK_TEST_PANICS";
        if let Ok(role) = std::env::var(ROLE) {
            let too_wide: &[(&str, usize)] = &[("LOCK", usize::MAX), ("HELD BY", usize::MAX)];
            let mut looks = 0;
            let look = || {
                looks += 1;
                assert!(role == "draws" || looks == 1, "the look panics");
                let columns = if role == "draws" { too_wide } else { &COLUMNS };
                Ok(Picture { columns, ..Picture::default() })
            };
            let failure = show(Duration::from_millis(100), look).unwrap_err();
            crate::process::say(&failure.message);
            std::process::exit(failure.exit.code().into());
        }
        for (role, words) in [("draws", "overflow"), ("looks", "the look panics")] {
            let (mut pty, pts) = pty_process::blocking::open().unwrap();
            let this = pty_process::blocking::Command::new(std::env::current_exe().unwrap());
            let test = ["--exact", "screen::tests::a_panic_is_said_after_the_screen", "--nocapture"];
            let mut child = this.args(test).env(ROLE, role).spawn(pts).unwrap();
            let mut said = Vec::new();
            let _ = std::io::Read::read_to_end(&mut pty, &mut said); // ends with an error, as the terminal does
            let said = String::from_utf8_lossy(&said);
            assert_eq!(child.wait().unwrap().code(), Some(125), "{said}");
            let (_, after) = said.rsplit_once("\u{1b}[?1049l").expect("a screen that was left");
            assert!(after.starts_with("fairlock: panicked at ") && after.contains(words), "{said}");
        }
    }

    /// The picture stays while the store is away.
    #[test]
    fn an_outage_is_shown_above_the_last_picture() {
        let mut shown = shown(&[&[("a", "x", "0")]]);
        let away = Failure::new(Exit::Unavailable, "the store is unavailable:\n down");
        shown.take((Err(away), Duration::from_secs(1)));
        let lines = shown.lines(80, 24);
        assert_eq!(lines[1], "no answer for 0ms: the store is unavailable:\\n down");
        assert!(lines[3].starts_with("  a "));
        shown.seen_at = Instant::now().checked_sub(Duration::from_secs(9));
        assert!(shown.lines(80, 24)[1].starts_with("no answer for 8."));
        shown.failure = None; // the look is still under way
        assert!(shown.lines(80, 24)[1].starts_with("no answer for 8."));
        shown.take((Ok(Picture { text: vec!["long ".repeat(40)], ..Picture::default() }), Duration::ZERO));
        assert_eq!(shown.lines(80, 24).len(), 5, "a line of text is wrapped");
    }
}
