//! `fairlock show`: who holds a lock, and the line in order.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write, stdout};
use std::time::Duration;

use fairlock::{Holder, Lock, LockState, Waiter};
use serde_json::{Value, json};

use crate::args::{Server, Show};
use crate::duration;
use crate::exit::{Exit, Failure};
use crate::names::{host_and_process, plain};
use crate::server;

/// Back to the first line and column, and everything below is gone.
const CLEAR: &str = "\x1b[H\x1b[J";

pub(crate) fn show(server: &Server, options: &Show) -> Result<Exit, Failure> {
    let client = server::client(server)?;
    let lock = server::fair_lock(&client, &options.name)?;
    loop {
        let first = options.from - 1;
        let state = look(&lock, first, options.lines)?;
        let text = if options.json {
            format!("{}\n", to_json(&options.name, &state, first))
        } else {
            let clear = if options.watch.is_some() && stdout().is_terminal() { CLEAR } else { "" };
            format!("{clear}{}", to_text(&options.name, &state, first))
        };
        let mut out = stdout();
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
            return Ok(Exit::Done); // whoever watched has gone
        }
        match options.watch {
            Some(pause) => std::thread::sleep(pause.max(Duration::from_millis(100))),
            None => return Ok(Exit::Done),
        }
    }
}

/// So many of the line, in calls that none is long for the server.
fn look(lock: &Lock, first: u64, lines: u64) -> Result<LockState, Failure> {
    let end = first.saturating_add(lines);
    let mut state = lock.inspect_line(first..end)?;
    loop {
        let next = first.saturating_add(state.line.len() as u64);
        if next >= end.min(state.line_length) {
            return Ok(state);
        }
        let mut more = lock.inspect_line(next..end)?.line;
        if more.is_empty() {
            return Ok(state); // the line has become shorter
        }
        state.line.append(&mut more);
    }
}

fn to_text(name: &str, state: &LockState, first: u64) -> String {
    let mut text = format!("lock    {}\n", plain(name));
    match &state.holder {
        None => text.push_str("holder  nobody\n"),
        Some(holder) => write_holder(&mut text, holder),
    }
    match state.line_length {
        0 => text.push_str("line    nobody waits\n"),
        n => {
            let _ = writeln!(text, "line    {n} waiting");
        }
    }
    let mut next = first + 1;
    for waiter in &state.line {
        write_waiter(&mut text, next, waiter);
        next += 1;
    }
    if !state.line.is_empty() && next <= state.line_length {
        let _ = writeln!(text, "        and {} more: --from {next}", state.line_length - next + 1);
    }
    text
}

fn write_holder(text: &mut String, holder: &Holder) {
    let _ = writeln!(text, "holder  {}", who(holder.label.as_deref(), holder.owner.as_str()));
    let time = |time: Option<Duration>| time.map_or_else(|| "unknown".to_owned(), duration::show);
    let lease = holder.lease_left.map_or_else(|| "without end".to_owned(), duration::show);
    let _ = writeln!(
        text,
        "        held for {}, lease left {lease}, hold count {}",
        time(holder.held_for),
        holder.hold_count
    );
    match holder.token {
        Some(token) => {
            let _ = writeln!(text, "        token {token}");
        }
        None => text.push_str("        no token: not a client of fairlock\n"),
    }
}

fn write_waiter(text: &mut String, number: u64, waiter: &Waiter) {
    let _ = write!(text, "{number:>6}  {}", who(waiter.label.as_deref(), waiter.owner.as_str()));
    if let Some(waiting) = waiter.waiting {
        let _ = write!(text, ", waiting for {}", duration::show(waiting));
    }
    match waiter.place_left {
        Some(Duration::ZERO) => text.push_str(", silent for longer than its place lasts"),
        Some(left) => {
            let _ = write!(text, ", place kept for {}", duration::show(left));
        }
        None => {}
    }
    text.push('\n');
}

fn who(label: Option<&str>, owner: &str) -> String {
    match label {
        Some(label) => format!("{} ({})", plain(label), plain(owner)),
        None => plain(owner),
    }
}

/// One object; times in milliseconds, null for what is not known.
fn to_json(name: &str, state: &LockState, first: u64) -> Value {
    let waiter = |(number, waiter): (u64, &Waiter)| {
        let (host, process) = place(&waiter.label);
        json!({
            "number": number, "owner": waiter.owner.as_str(), "label": waiter.label, "host": host, "process": process,
            "waiting_ms": millis(waiter.waiting), "place_left_ms": millis(waiter.place_left),
        })
    };
    let mut object = summary(name, state);
    object["line"] = (first + 1..).zip(&state.line).map(waiter).collect();
    object
}

/// The same without those who wait: how many they are.
pub(crate) fn summary(name: &str, state: &LockState) -> Value {
    let holder = state.holder.as_ref().map(|holder| {
        let (host, process) = place(&holder.label);
        json!({
            "owner": holder.owner.as_str(), "label": holder.label, "host": host, "process": process,
            "held_for_ms": millis(holder.held_for), "lease_left_ms": millis(holder.lease_left),
            "hold_count": holder.hold_count, "token": holder.token.map(fairlock::FencingToken::get),
        })
    });
    json!({ "name": name, "holder": holder, "waiting": state.line_length })
}

fn millis(time: Option<Duration>) -> Option<u64> {
    time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

fn place(label: &Option<String>) -> (Option<&str>, Option<u32>) {
    label.as_deref().and_then(host_and_process).unzip()
}
