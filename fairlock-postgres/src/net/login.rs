//! The start of a session: parameters, and the password as the server asks for it.

use std::time::Instant;

use fairlock_core::backend::BackendErrorKind;
use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::backend::{AuthenticationSaslBody, Message};
use postgres_protocol::message::frontend;

use super::address::Address;
use super::connection::Connection;
use super::failure::Failure;

/// The most rounds of hashing that a server may ask for. PostgreSQL asks for 4,096 unless it is set up otherwise; a million take a
/// second, which no deadline ends.
const MOST_ROUNDS: u32 = 1_000_000;

/// Logs in. A pooler refuses other parameters than these, so all else is set in transactions.
pub(super) fn log_in(con: &mut Connection, address: &Address, deadline: Instant) -> Result<(), Failure> {
    let mut parameters = vec![
        ("user", address.user.as_str()),
        ("database", &address.database),
        ("client_encoding", "UTF8"),
        ("application_name", &address.application_name),
    ];
    parameters.extend(address.options.as_deref().map(|options| ("options", options)));
    con.say(deadline, |out| frontend::startup_message(parameters, out))?;
    loop {
        match con.accept()? {
            Message::AuthenticationOk => {}
            Message::BackendKeyData(body) => con.process = (body.process_id(), body.secret_key()),
            Message::ReadyForQuery(_) => return Ok(()),
            Message::AuthenticationCleartextPassword => {
                let password = password_of(address)?.as_bytes();
                con.say(deadline, |out| frontend::password_message(password, out))?;
            }
            Message::AuthenticationMd5Password(body) => {
                let (user, password) = (address.user.as_bytes(), password_of(address)?.as_bytes());
                let hashed = md5_hash(user, password, body.salt());
                con.say(deadline, |out| frontend::password_message(hashed.as_bytes(), out))?;
            }
            Message::AuthenticationSasl(body) => scram(con, address, &body, deadline)?,
            _ => {
                let message = "the server asks for an unsupported kind of login: SCRAM, md5 and passwords are supported";
                return Err(Failure::invalid(message));
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
        return Err(Failure::invalid("the server asks for a SASL login other than SCRAM-SHA-256"));
    }
    let mut scram = ScramSha256::new(password_of(address)?.as_bytes(), ChannelBinding::unsupported());
    con.say(deadline, |out| frontend::sasl_initial_response(SCRAM_SHA_256, scram.message(), out))?;
    let Message::AuthenticationSaslContinue(body) = con.accept()? else { return Err(Failure::senseless()) };
    let mut fields = body.data().split(|byte| *byte == b',');
    let rounds = fields.find_map(|field| str::from_utf8(field.strip_prefix(b"i=")?).ok()?.parse().ok());
    if rounds.is_some_and(|rounds: u32| rounds > MOST_ROUNDS) {
        let message = format!("the server asks for more than {MOST_ROUNDS} rounds of SCRAM");
        return Err(Failure::invalid(message));
    }
    scram.update(body.data())?;
    con.say(deadline, |out| frontend::sasl_response(scram.message(), out))?;
    let Message::AuthenticationSaslFinal(body) = con.accept()? else { return Err(Failure::senseless()) };
    Ok(scram.finish(body.data())?) // the server has to prove that it knows the password, too
}

fn password_of(address: &Address) -> Result<&str, Failure> {
    let message = "the server asks for a password, and the address has none";
    address.password.as_deref().ok_or_else(|| Failure::new(BackendErrorKind::Denied, message))
}
