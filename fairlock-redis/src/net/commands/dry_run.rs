//! Tries commands without executing them: inside a MULTI the server only queues a command, but checks its rights.

use std::time::Instant;

use redis::{Cmd, Value, cmd};

use super::command_connection::CommandConnection;
use crate::net::connection::{Address, Failure, Timeouts, open};

/// What the server replies to each command; none is executed.
///
/// # Errors
/// There is no connection, or the user has no right to MULTI; no command was sent then.
pub(crate) fn dry_run(
    address: &Address,
    timeouts: Timeouts,
    commands: &[Cmd],
) -> Result<Vec<Result<Value, Failure>>, Failure> {
    // Its own connection, which is never replaced: only this connection, which has said OK to MULTI, does not execute
    // the commands.
    let mut connection = CommandConnection::new();
    connection.connect(open(address, &timeouts)?);
    let mut begun = Err(Failure::NotSent("no answer to MULTI".into()));
    connection.exchange(
        &cmd("MULTI").get_packed_command(),
        1,
        Instant::now(),
        timeouts.response,
        |reply| begun = reply,
    )?;
    begun?;
    let packed: Vec<u8> = commands.iter().flat_map(Cmd::get_packed_command).collect();
    let mut answers = Vec::with_capacity(commands.len());
    connection
        .exchange(&packed, commands.len(), Instant::now(), timeouts.response, |reply| answers.push(reply))?;
    // Closing the connection discards the commands, and unlike DISCARD needs no right.
    Ok(answers)
}

#[cfg(feature = "servers")]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::test_server::{TIMEOUTS, TestServer};

    #[test]
    fn a_dry_run_tells_refusals_and_carries_nothing_out() {
        let server = TestServer::start();
        let commands = [cmd("SET").arg("key").arg("x").to_owned(), cmd("NOSUCH")];
        let answers = dry_run(&server.address(), TIMEOUTS, &commands).expect("answers");
        assert!(matches!(&answers[..], [Ok(_), Err(Failure::Refused { .. })]), "{answers:?}");
        assert_eq!(server.command(&["EXISTS", "key"]), Value::Int(0));
    }
}
