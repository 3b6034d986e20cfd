//! What an operator sees of locks and does to them: `fairlock show` has the holders of a lock and its queue in order, `fairlock ls` the locks
//! that are held or waited for; `fairlock unlock` takes a lock from its holders, or from one of them, after a question.

use std::fmt::Write as _;
use std::time::Duration;

use fairlock::admin::{Admin, Holder, LockName, LockState, Waiter};
use fairlock::owner::OwnerId;
use fairlock::{Error, FencingToken};
use serde_json::{Value, json};

use crate::args::{Ls, Show, Unlock};
use crate::process::{Exit, Failure, JSON_VERSION, confirm, say};
use crate::screen::{Picture, Row, table, watch};
use crate::server::{self, Locks};
use crate::settings::Server;
use crate::words::{
    and_more, columns, duration, escaped, fit_name, how_long, kind_of, name_of, permits, units,
    waits_per_second, wanted,
};

/// How long a line may be without --wide, and where its text begins.
const COLUMNS: usize = 80;
const MARGIN: usize = 8;
/// How many holders are shown: a read-write lock can have very many.
const MOST_HOLDERS: usize = 100;

pub(crate) fn show(server: &Server, options: &Show) -> Result<Exit, Failure> {
    let admin = server::client(server)?.admin(&options.name)?;
    let first = options.from - 1;
    let text = |state: &LockState| match options.json {
        true => format!("{}\n", to_json(&options.name, state, first)),
        false => server::where_it_looks(server) + &to_text(options, state),
    };
    let picture = |state: &LockState| to_picture(options, state, &server::and_where(server));
    let mut is_held = true;
    let look = || {
        let seen = read(&admin, first, options.lines);
        is_held = seen.as_ref().is_ok_and(|state| !state.holders.is_empty());
        seen
    };
    let ended = watch(options.watch, look, text, (!options.json).then_some(picture))?;
    Ok(if options.exit_code && !is_held { Exit::No } else { ended })
}

/// Reads this part of the queue, by several calls: none keeps the server busy.
pub(crate) fn read(admin: &Admin, first: u64, lines: u64) -> Result<LockState, Failure> {
    let end = first.saturating_add(lines);
    // One at least: a look at none of the queue does not tell who is absent.
    let mut state = admin.inspect_queue(first..end.max(first.saturating_add(1)))?;
    state.queue.truncate(usize::try_from(lines).unwrap_or(usize::MAX));
    loop {
        let next = first.saturating_add(state.queue.len() as u64);
        if next >= end.min(state.queue_length) {
            return Ok(state);
        }
        let mut more = admin.inspect_queue(next..end)?.queue;
        if more.is_empty() {
            return Ok(state); // the queue has become shorter
        }
        state.queue.append(&mut more);
    }
}

fn to_text(options: &Show, state: &LockState) -> String {
    let name = escaped(&options.name);
    let mut text = format!("lock    {}\n", fit(name, "", options.wide));
    if let Some(permits) = permits(state) {
        let _ = writeln!(text, "kind    semaphore: {} of {permits} permits are held", state.taken());
    } else if state.capacity.is_some() {
        text.push_str("kind    read-write lock\n");
    }
    if state.holders.is_empty() {
        text.push_str("holder  none\n");
    }
    for holder in state.holders.iter().take(MOST_HOLDERS) {
        write_holder(&mut text, holder, units(state, holder.units), options.wide);
    }
    if let Some(more @ 1..) = state.holders.len().checked_sub(MOST_HOLDERS) {
        let _ = writeln!(text, "        and {more} more holders: --json has them all");
    }
    let waiting = match state.waiting() {
        0 => "empty".to_owned(),
        n => format!("{n} waiting"),
    };
    let absent = match state.absent {
        0 => String::new(),
        n => format!(", {n} absent"),
    };
    let _ = writeln!(text, "queue   {waiting}{absent}");
    let mut next = options.from;
    for waiter in &state.queue {
        write_waiter(&mut text, next, waiter, wanted(state, waiter), options.wide);
        next += 1;
    }
    if !state.queue.is_empty() && next <= state.queue_length {
        let _ = writeln!(text, "        and {} more: --from {next}", state.queue_length - next + 1);
    }
    text
}

fn write_holder(text: &mut String, holder: &Holder, units: Option<String>, wide: bool) {
    let name = full_name(&holder.label, &holder.owner, wide);
    let _ = writeln!(text, "holder  {}", fit(name, "", wide));
    let time = |time: Option<Duration>| time.map_or_else(|| "unknown".to_owned(), duration);
    let lease = holder.lease_left.map_or_else(|| "endless".to_owned(), duration);
    let _ = writeln!(
        text,
        "        {}held for {}, lease left {lease}, hold count {}",
        units.map(|units| units + ", ").unwrap_or_default(),
        time(holder.held_for),
        holder.hold_count,
    );
    match holder.token {
        Some(token) => {
            let _ = writeln!(text, "        token {token}");
        }
        None => text.push_str("        no token: the holder is not a fairlock client\n"),
    }
    if let Some(traceparent) = &holder.traceparent {
        let _ = writeln!(text, "        trace {traceparent}");
    }
}

fn write_waiter(text: &mut String, number: u64, waiter: &Waiter, units: Option<String>, wide: bool) {
    let mut times = units.map(|units| format!(", {units}")).unwrap_or_default();
    times += &how_long(", waiting", waiter.waiting);
    match waiter.place_left {
        _ if waiter.is_absent() => times.push_str(", absent"),
        Some(left) if wide => times.push_str(&format!(", place kept for {}", duration(left))),
        _ => {}
    }
    let name = full_name(&waiter.label, &waiter.owner, wide);
    let _ = writeln!(text, "{number:>6}  {}{times}", fit(name, &times, wide));
}

const SCREEN: [(&str, usize); 6] =
    [("HOLDER OR WAITER", 0), ("PLACE", 7), ("FOR", 6), ("LEFT", 7), ("TAKES", 9), ("TOKEN", 16)];

/// The holders, and below them the waiters.
fn to_picture(options: &Show, state: &LockState, place: &str) -> Picture {
    let mut rows = Vec::new();
    let time = |time: Option<Duration>| time.map(duration).unwrap_or_default();
    for holder in &state.holders {
        let token = holder.token.map(|token| token.to_string()).unwrap_or_default();
        rows.push(Row {
            key: holder.owner.to_string(),
            state: format!("{token} {} {}", holder.units, holder.hold_count),
            cells: vec![
                full_name(&holder.label, &holder.owner, options.wide),
                "holder".to_owned(),
                time(holder.held_for),
                holder.lease_left.map_or_else(|| "endless".to_owned(), duration),
                units(state, holder.units).unwrap_or_default(),
                token,
            ],
        });
    }
    for (number, waiter) in (options.from..).zip(&state.queue) {
        let left = if waiter.is_absent() { "absent".to_owned() } else { time(waiter.place_left) };
        rows.push(Row {
            key: waiter.owner.to_string(),
            state: format!("{} {}", waiter.units, waiter.is_absent()),
            cells: vec![
                full_name(&waiter.label, &waiter.owner, options.wide),
                number.to_string(),
                time(waiter.waiting),
                left,
                wanted(state, waiter).unwrap_or_default(),
                String::new(),
            ],
        });
    }
    let of_queue = if state.queue.is_empty() { 0 } else { state.queue_length };
    let listed = options.from - 1 + state.queue.len() as u64;
    Picture {
        head: format!("{}{place}: {}", escaped(&options.name), sums(state, options.from - 1)),
        columns: &SCREEN,
        rows,
        more: of_queue.saturating_sub(listed) + state.unlisted_holders,
        ..Picture::default()
    }
}

fn sums(state: &LockState, rank: u64) -> String {
    let mut sums = vec![format!("{} waiting", state.waiting())];
    if state.absent > 0 {
        sums.push(format!("{} absent", state.absent));
    }
    match waits_per_second(state, rank) {
        none if none.is_empty() => {}
        waits => sums.push(format!("{waits} waits/s")),
    }
    if let Some(permits) = permits(state) {
        sums.push(format!("{} of {permits} permits are held", state.taken()));
    }
    sums.join(", ")
}

/// The label, with the owner if there is none or `wide` is set.
fn full_name(label: &Option<String>, owner: &OwnerId, wide: bool) -> String {
    match label {
        Some(label) if wide => format!("{} ({})", escaped(label), escaped(owner.as_str())),
        _ => name_of(label, owner),
    }
}

/// The name, shortened: name and following text fit into one line.
fn fit(name: String, then: &str, wide: bool) -> String {
    if wide { name } else { fit_name(&name, COLUMNS - MARGIN - columns(then)) }
}

/// One object. Times are in milliseconds; null means unknown.
pub(crate) fn to_json(name: &str, state: &LockState, first: u64) -> Value {
    let waiter = |(number, waiter): (u64, &Waiter)| {
        let (host, process) = process_of(&waiter.label);
        json!({
            "number": number, "owner": waiter.owner.as_str(), "label": waiter.label, "host": host, "process": process,
            "units": waiter.units, "permits": waiter.capacity.filter(|_| permits(state).is_some()),
            "waiting_ms": millis(waiter.waiting), "place_left_ms": millis(waiter.place_left),
            "absent": waiter.is_absent(), "traceparent": waiter.traceparent,
        })
    };
    let mut object = summary(name, state);
    object["queue"] = (first + 1..).zip(&state.queue).map(waiter).collect();
    object
}

/// That object without the queue, but with its length.
pub(crate) fn summary(name: &str, state: &LockState) -> Value {
    let holder = |holder: &Holder| {
        let (host, process) = process_of(&holder.label);
        json!({
            "owner": holder.owner.as_str(), "label": holder.label, "host": host, "process": process, "units": holder.units,
            "held_for_ms": millis(holder.held_for), "lease_left_ms": millis(holder.lease_left),
            "hold_count": holder.hold_count, "token": holder.token.map(FencingToken::get),
            "traceparent": holder.traceparent,
        })
    };
    json!({
        "version": JSON_VERSION, "name": name, "kind": kind_of(state), "permits": permits(state),
        "holder": state.holder().map(holder), "holders": state.holders.iter().map(holder).collect::<Vec<_>>(),
        "waiting": state.waiting(), "absent": state.absent,
    })
}

fn millis(time: Option<Duration>) -> Option<u64> {
    time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

fn process_of(label: &Option<String>) -> (Option<&str>, Option<u32>) {
    label.as_deref().and_then(host_and_process).unzip()
}

/// The host and process that a label names: `host:pid`, or `label (host:pid)`.
fn host_and_process(label: &str) -> Option<(&str, u32)> {
    let process = match label.strip_suffix(')') {
        Some(rest) => rest.rsplit_once('(')?.1,
        None => label,
    };
    let (host, process) = process.rsplit_once(':')?;
    Some((host, process.parse().ok()?))
}

const TABLE: [(&str, usize); 6] =
    [("LOCK", 0), ("HELD BY", 0), ("HOW", 8), ("FOR", 6), ("WAITING", 7), ("WAITS/S", 7)];

pub(crate) fn ls(server: &Server, options: &Ls) -> Result<Exit, Failure> {
    let store = server::store(server)?;
    let text = |(locks, unread): &(Locks, Vec<Error>)| {
        if options.json {
            unread.iter().for_each(|error| say(&error.to_string()));
            let all: Vec<Value> = locks.iter().map(|(name, state)| summary(name.as_str(), state)).collect();
            return format!("{}\n", Value::from(all));
        }
        let unread: String = unread.iter().map(|error| format!("{error}\n")).collect();
        let table = match locks.is_empty() {
            true if unread.is_empty() => "no lock is held or waited for\n".to_owned(),
            true => String::new(),
            false => table(&TABLE, &locks.iter().map(|(name, state)| row(name, state)).collect::<Vec<_>>()),
        };
        server::where_it_looks(server) + &table + &unread
    };
    let picture = |(locks, unread): &(Locks, Vec<Error>)| Picture {
        head: format!("locks: {}{}", locks.len(), server::and_where(server)),
        columns: &TABLE,
        rows: locks
            .iter()
            .map(|(name, state)| row(name, state))
            .chain(unread.iter().map(unread_row))
            .collect(),
        ..Picture::default()
    };
    let look = || Ok(store.locks_and_unread(options.pattern.as_deref())?);
    watch(options.watch, look, text, (!options.json).then_some(picture))
}

/// A lock is marked when a holder or the number of its waiters is another one.
fn row(name: &LockName, state: &LockState) -> Row {
    let holds = state.holders.iter().map(|holder| (&holder.owner, holder.token));
    let (holder, how, held_for) = match state.holder() {
        Some(first) => (
            holder_name(first) + &and_more(state),
            how_held(state, first),
            first.held_for.map(duration).unwrap_or_default(),
        ),
        None => Default::default(),
    };
    Row {
        key: name.as_str().to_owned(),
        state: format!("{:?} {}", holds.collect::<Vec<_>>(), state.waiting()),
        cells: vec![
            escaped(name.as_str()),
            holder,
            how,
            held_for,
            state.waiting().to_string(),
            waits_per_second(state, 0),
        ],
    }
}

fn unread_row(error: &Error) -> Row {
    let name = error.lock_name().map(|name| escaped(name.as_str())).unwrap_or_default();
    let cells = [vec![name, error.to_string()], vec![String::new(); TABLE.len() - 2]].concat();
    Row { key: error.to_string(), state: String::new(), cells }
}

/// How the lock is held, in a word or two: nothing to say of a lock that one holder has.
fn how_held(state: &LockState, first: &Holder) -> String {
    match (permits(state), units(state, first.units)) {
        (Some(permits), _) => format!("{} of {permits}", state.taken()),
        (None, units) => units.unwrap_or_default(),
    }
}

pub(crate) fn unlock(server: &Server, options: &Unlock) -> Result<Exit, Failure> {
    let admin = server::client(server)?.admin(&options.name)?;
    let state = admin.inspect_queue(0..0)?;
    let name = escaped(&options.name);
    let one = options.holder.as_deref().map(|text| find(&state, text, &name)).transpose()?;
    let question = match (one, state.holders.as_slice()) {
        (Some(holder), _) | (None, [holder]) => {
            let since = how_long(", which has held it", holder.held_for);
            format!("Take {name} from its holder {}{since}?", holder_name(holder))
        }
        (None, []) => return not_held(&name),
        (None, all) => format!("Take {name} from all its {} holders?", all.len()),
    };
    if !confirm(&question, options.yes)? {
        return Ok(Exit::No);
    }
    let is_taken = match one {
        Some(holder) if state.capacity.is_some() => admin.force_unlock_of(&holder.owner)?,
        _ => admin.force_unlock()?,
    };
    if !is_taken {
        return not_held(&name);
    }
    let from: Vec<_> = one.map_or(&*state.holders, std::slice::from_ref).iter().map(holder_name).collect();
    say(&format!("{name} was taken from {}", from.join(", ")));
    Ok(Exit::Done)
}

/// The only holder that goes by this name, or is this owner.
///
/// # Errors
/// If several holders go by this name, with the first ten.
fn find<'a>(state: &'a LockState, text: &str, lock: &str) -> Result<&'a Holder, Failure> {
    if let Some(holder) = state.holders.iter().find(|holder| holder.owner.as_str() == text) {
        return Ok(holder);
    }
    let goes_by = |holder: &&Holder| holder.label.as_deref().is_some_and(|label| goes_by(label, text));
    match state.holders.iter().filter(goes_by).collect::<Vec<_>>()[..] {
        [] => Err(Failure::new(Exit::No, format!("{} does not hold {lock}", escaped(text)))),
        [one] => Ok(one),
        ref all => {
            let mut message =
                format!("{} holders go by {}; name one by its owner:", all.len(), escaped(text));
            for holder in all.iter().take(10) {
                message += &format!("\n{}", full_name(&holder.label, &holder.owner, true));
            }
            Err(Failure::ours(message))
        }
    }
}

fn holder_name(holder: &Holder) -> String {
    name_of(&holder.label, &holder.owner)
}

fn not_held(name: &str) -> Result<Exit, Failure> {
    say(&format!("{name} is not held"));
    Ok(Exit::No)
}

/// Whether the text is this label, or one of the two parts of `label (host:pid)`.
fn goes_by(label: &str, text: &str) -> bool {
    let parts = label.strip_suffix(')').and_then(|label| label.rsplit_once(" ("));
    label == text || parts.is_some_and(|(given, process)| given == text || process == text)
}

#[cfg(test)]
mod tests {
    use fairlock::backend::label_with_traceparent;
    use fairlock::owner::OwnerId;

    use super::*;

    #[test]
    fn a_traceparent_is_shown_apart_from_the_label() {
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let (mut holder, mut waiter) =
            (Holder::new(OwnerId::new("a:1"), 1), Waiter::new(OwnerId::new("b:1")));
        holder.set_label(&label_with_traceparent("host-7:4123", trace).unwrap());
        waiter.set_label(&label_with_traceparent("", trace).unwrap());
        let mut state = LockState::default();
        (state.holders, state.queue, state.queue_length) = (vec![holder], vec![waiter], 1);
        let text = to_text(&options(), &state);
        assert!(
            text.contains("holder  host-7:4123\n") && text.contains(&format!("\n        trace {trace}\n")),
            "{text}"
        );
        assert!(text.contains("     1  b:1\n"), "{text}");
        let json = to_json("x", &state, 0);
        assert_eq!(
            (&json["holder"]["process"], &json["holder"]["traceparent"]),
            (&json!(4123), &json!(trace))
        );
        assert_eq!(
            (&json["queue"][0]["label"], &json["queue"][0]["traceparent"]),
            (&json!(null), &json!(trace))
        );
    }

    fn options() -> Show {
        Show {
            name: "x".to_owned(),
            lines: 100,
            from: 1,
            watch: None,
            wide: false,
            json: false,
            exit_code: false,
        }
    }

    /// A waiter that names another number of permits than the last grant did.
    #[test]
    fn a_waiter_with_another_number_of_permits_is_shown_with_it() {
        let mut state = LockState::default();
        state.capacity = Some(8);
        state.holders = vec![Holder::new(OwnerId::new("a:1"), 1)];
        let waiter = |capacity| {
            let mut waiter = Waiter::new(OwnerId::new(&format!("b:{capacity}")));
            waiter.capacity = Some(capacity);
            waiter
        };
        state.queue = vec![waiter(5), waiter(8)];
        let text = to_text(&options(), &state);
        assert!(text.contains("kind    semaphore: 1 of 8 permits are held\n"), "{text}");
        assert!(text.contains("b:5, 1 of 5 permits\n") && text.contains("b:8, 1 permit\n"), "{text}");
        let json = to_json("x", &state, 0);
        assert_eq!((&json["permits"], &json["queue"][0]["permits"]), (&json!(8), &json!(5)));
    }

    /// A hundred of many holders are shown, and the others are counted.
    #[test]
    fn a_hundred_holders_are_shown_and_the_others_counted() {
        let mut state = LockState::default();
        state.capacity = Some(u32::MAX);
        for (readers, more) in [(100, false), (102, true)] {
            state.holders = (0..readers).map(|n| Holder::new(OwnerId::new(&format!("a:{n}")), 1)).collect();
            let text = to_text(&options(), &state);
            assert_eq!(text.matches("read, held for unknown").count(), 100, "{text}");
            assert_eq!(text.contains("and 2 more holders: --json has them all\n"), more, "{text}");
        }
    }

    #[test]
    fn host_and_process_are_read_from_labels_that_name_them() {
        assert_eq!(host_and_process("h:12"), Some(("h", 12)));
        assert_eq!(host_and_process("nightly (h.x:12)"), Some(("h.x", 12)));
        assert_eq!(host_and_process("orders-worker-3"), None);
        assert_eq!(host_and_process("a:b"), None);
    }

    #[test]
    fn a_label_goes_by_its_parts() {
        for (label, text, is) in [
            ("nightly (h:12)", "nightly (h:12)", true),
            ("nightly (h:12)", "nightly", true),
            ("nightly (h:12)", "h:12", true),
            ("nightly (h:12)", "night", false),
            ("h:12", "h:12", true),
            ("h:12", "h", false),
            ("", "", true),
        ] {
            assert_eq!(goes_by(label, text), is, "{label} by {text}");
        }
    }
}
