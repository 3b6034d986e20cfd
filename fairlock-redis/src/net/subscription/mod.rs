//! Wake-ups: a connection and a thread that listen on the channels of one client.

mod channels;
mod endpoints;
mod listener;
mod shared;
mod subscriber;

pub(crate) use endpoints::Endpoints;
pub(crate) use shared::Event;
pub(crate) use subscriber::Subscriber;
