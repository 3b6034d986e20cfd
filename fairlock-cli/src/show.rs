//! `fairlock show`: the holder of a lock, and its line in order.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write, stdout};
use std::time::Duration;

use fairlock::{Holder, Lock, LockState, Waiter};
use serde_json::{Value, json};

use crate::args::{Server, Show};
use crate::duration;
use crate::exit::{Exit, Failure};
use crate::names::{escaped, host_and_process};
use crate::server;

/// Moves the cursor to the first line and column, and clears everything below.
const CLEAR: &str = "\x1b[H\x1b[J";

pub(crate) fn show(server: &Server, options: &Show) -> Result<Exit, Failure> {
    let client = server::client(server)?;
    let lock = server::fair_lock(&client, &options.name)?;
    loop {
        let first = options.from - 1;
        let state = read(&lock, first, options.lines)?;
        let text = if options.json {
            format!("{}\n", to_json(&options.name, &state, first))
        } else {
            let clear = if options.watch.is_some() && stdout().is_terminal() { CLEAR } else { "" };
            format!("{clear}{}", to_text(&options.name, &state, first))
        };
        let mut out = stdout();
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
            return Ok(Exit::Done); // standard output was closed
        }
        match options.watch {
            Some(pause) => std::thread::sleep(pause.max(Duration::from_millis(100))),
            None => return Ok(Exit::Done),
        }
    }
}

/// Reads this part of the line, in several calls so that none keeps the server busy.
fn read(lock: &Lock, first: u64, lines: u64) -> Result<LockState, Failure> {
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
    let mut text = format!("lock    {}\n", escaped(name));
    match &state.holder {
        None => text.push_str("holder  none\n"),
        Some(holder) => write_holder(&mut text, holder),
    }
    match state.line_length {
        0 => text.push_str("line    empty\n"),
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
    let _ = writeln!(text, "holder  {}", name_of(holder.label.as_deref(), holder.owner.as_str()));
    let time = |time: Option<Duration>| time.map_or_else(|| "unknown".to_owned(), duration::show);
    let lease = holder.lease_left.map_or_else(|| "endless".to_owned(), duration::show);
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
        None => text.push_str("        no token: the holder is no fairlock client\n"),
    }
}

fn write_waiter(text: &mut String, number: u64, waiter: &Waiter) {
    let _ = write!(text, "{number:>6}  {}", name_of(waiter.label.as_deref(), waiter.owner.as_str()));
    if let Some(waiting) = waiter.waiting {
        let _ = write!(text, ", waiting for {}", duration::show(waiting));
    }
    match waiter.place_left {
        Some(Duration::ZERO) => text.push_str(", overdue: no heartbeat for its place"),
        Some(left) => {
            let _ = write!(text, ", place kept for {}", duration::show(left));
        }
        None => {}
    }
    text.push('\n');
}

fn name_of(label: Option<&str>, owner: &str) -> String {
    match label {
        Some(label) => format!("{} ({})", escaped(label), escaped(owner)),
        None => escaped(owner),
    }
}

/// One object. Times are in milliseconds; null means unknown.
fn to_json(name: &str, state: &LockState, first: u64) -> Value {
    let waiter = |(number, waiter): (u64, &Waiter)| {
        let (host, process) = process_of(&waiter.label);
        json!({
            "number": number, "owner": waiter.owner.as_str(), "label": waiter.label, "host": host, "process": process,
            "waiting_ms": millis(waiter.waiting), "place_left_ms": millis(waiter.place_left),
        })
    };
    let mut object = summary(name, state);
    object["line"] = (first + 1..).zip(&state.line).map(waiter).collect();
    object
}

/// The same without the line, but with its length.
pub(crate) fn summary(name: &str, state: &LockState) -> Value {
    let holder = state.holder.as_ref().map(|holder| {
        let (host, process) = process_of(&holder.label);
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

fn process_of(label: &Option<String>) -> (Option<&str>, Option<u32>) {
    label.as_deref().and_then(host_and_process).unzip()
}
