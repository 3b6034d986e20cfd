//! The start of a session: parameters, and the password as the server asks for it.

use std::time::Instant;

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::backend::{AuthenticationSaslBody, Message};
use postgres_protocol::message::frontend;

use super::address::Address;
use super::failure::Failure;
use super::wire::Connection;

/// Logs in. A pooler refuses other parameters than these, so all else is set in transactions.
pub(super) fn log_in(con: &mut Connection, address: &Address, deadline: Instant) -> Result<(), Failure> {
    let mut parameters = vec![
        ("user", address.user.as_str()),
        ("database", &address.database),
        ("client_encoding", "UTF8"),
        ("application_name", &address.application_name),
    ];
    parameters.extend(address.options.as_deref().map(|options| ("options", options)));
    let mut out = BytesMut::new();
    frontend::startup_message(parameters, &mut out)?;
    con.send(&out, deadline)?;
    loop {
        match con.receive()? {
            Message::AuthenticationOk => {}
            Message::BackendKeyData(body) => con.process = Some(body.process_id()),
            Message::ReadyForQuery(_) => return Ok(()),
            Message::AuthenticationCleartextPassword => {
                send_password(con, password_of(address)?.as_bytes(), deadline)?;
            }
            Message::AuthenticationMd5Password(body) => {
                let (user, password) = (address.user.as_bytes(), password_of(address)?.as_bytes());
                send_password(con, md5_hash(user, password, body.salt()).as_bytes(), deadline)?;
            }
            Message::AuthenticationSasl(body) => scram(con, address, &body, deadline)?,
            Message::ErrorResponse(body) => return Err(con.refused(&body)),
            _ => {
                let message = "the server asks for a way to log in that is not known here: SCRAM, md5 and a password are";
                return Err(Failure::Invalid(message.to_owned()));
            }
        }
    }
}

fn scram(
    con: &mut Connection,
    address: &Address,
    body: &AuthenticationSaslBody,
    deadline: Instant,
) -> Result<(), Failure> {
    if !body.mechanisms().any(|mechanism| Ok(mechanism == SCRAM_SHA_256))? {
        return Err(Failure::Invalid("the server asks for a SASL login other than SCRAM-SHA-256".to_owned()));
    }
    let mut scram = ScramSha256::new(password_of(address)?.as_bytes(), ChannelBinding::unsupported());
    let mut out = BytesMut::new();
    frontend::sasl_initial_response(SCRAM_SHA_256, scram.message(), &mut out)?;
    con.send(&out, deadline)?;
    match con.receive()? {
        Message::AuthenticationSaslContinue(body) => scram.update(body.data())?,
        Message::ErrorResponse(body) => return Err(con.refused(&body)),
        _ => return Err(Failure::senseless()),
    }
    out.clear();
    frontend::sasl_response(scram.message(), &mut out)?;
    con.send(&out, deadline)?;
    match con.receive()? {
        // The server has to prove that it knows the password, too.
        Message::AuthenticationSaslFinal(body) => Ok(scram.finish(body.data())?),
        Message::ErrorResponse(body) => Err(con.refused(&body)),
        _ => Err(Failure::senseless()),
    }
}

fn send_password(con: &mut Connection, password: &[u8], deadline: Instant) -> Result<(), Failure> {
    let mut out = BytesMut::new();
    frontend::password_message(password, &mut out)?;
    con.send(&out, deadline)
}

fn password_of(address: &Address) -> Result<&str, Failure> {
    let message = || Failure::Denied("the server asks for a password, and the address has none".to_owned());
    address.password.as_deref().ok_or_else(message)
}
