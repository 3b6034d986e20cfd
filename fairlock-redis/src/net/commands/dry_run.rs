//! Tries commands without carrying them out: inside a MULTI a command is only noted down, but its rights are looked at then.

use redis::{Cmd, Value, cmd};

use super::command_connection::CommandConnection;
use crate::net::connection::{Address, Failure, Timeouts, open};

/// What the server says to each command, none of which is carried out.
///
/// # Errors
/// There is no connection, or the user has no right to MULTI: then none of them was sent.
pub(crate) fn dry_run(
    address: &Address,
    timeouts: Timeouts,
    commands: &[Cmd],
) -> Result<Vec<Result<Value, Failure>>, Failure> {
    // A connection of its own, which is never replaced by another one: the commands are sent only after this very connection
    // has said OK to MULTI, else they would be carried out.
    let mut connection = CommandConnection::new();
    connection.connect(open(address, &timeouts)?);
    let mut begun = Err(Failure::NotSent("no answer to MULTI".to_owned()));
    connection.exchange(&cmd("MULTI").get_packed_command(), 1, timeouts.response, |reply| begun = reply)?;
    begun?;
    let packed: Vec<u8> = commands.iter().flat_map(Cmd::get_packed_command).collect();
    let mut answers = Vec::with_capacity(commands.len());
    connection.exchange(&packed, commands.len(), timeouts.response, |reply| answers.push(reply))?;
    // No DISCARD: the end of the connection is one, and needs no right.
    Ok(answers)
}
