//! Signals as a channel, and the end by one of them.

use std::thread;

use fairlock::crossbeam_channel::{Receiver, unbounded};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::exit::{Exit, Failure};

/// From now on these signals arrive on the channel, and do nothing else.
///
/// # Errors
/// If the system refuses.
pub(crate) fn channel_of(signals: impl IntoIterator<Item = i32>) -> Result<Receiver<i32>, Failure> {
    let (say, said) = unbounded();
    hear(signals, move |signal| say.send(signal))?;
    Ok(said)
}

/// From now on a thread hands these signals to `each`, until it fails.
///
/// # Errors
/// If the system refuses.
pub(crate) fn hear<E: Send + 'static>(
    signals: impl IntoIterator<Item = i32>,
    each: impl FnMut(i32) -> Result<(), E> + Send + 'static,
) -> Result<(), Failure> {
    let mut signals = Signals::new(signals).map_err(not_caught)?;
    let forever = move || signals.forever().try_for_each(each);
    thread::Builder::new().name("fairlock-signal".to_owned()).spawn(forever).map_err(not_caught)?;
    Ok(())
}

fn not_caught(error: std::io::Error) -> Failure {
    Failure::ours(format!("signals can't be caught: {error}"))
}

/// Ends as if the signal had not been caught, so that a shell sees the usual status. The first process of a container does not end by
/// signals: its own have no effect. It gives the exit code that shells have for that.
pub(crate) fn die_by(signal: i32) -> Exit {
    if std::process::id() != 1 {
        let _ = emulate_default_handler(signal);
    }
    Exit::Of(u8::try_from(128 + signal).unwrap_or(u8::MAX))
}
