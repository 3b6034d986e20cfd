//! A network between a client and a server: `delay SERVER_PORT MICROS` prints its own port, and hands on all bytes MICROS
//! later, in each direction. Bytes that follow each other travel at the same time, as on a wire.

use std::io::{Error, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, micros] = &arguments[..] else { return Err("delay SERVER_PORT MICROS".into()) };
    let (server, delay) = (server.parse::<u16>()?, Duration::from_micros(micros.parse()?));
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    for client in listener.incoming() {
        let (client, server) = (client?, TcpStream::connect(("127.0.0.1", server))?);
        hand_on(client.try_clone()?, server.try_clone()?, delay)?;
        hand_on(server, client, delay)?;
    }
    Ok(())
}

fn hand_on(mut from: TcpStream, mut to: TcpStream, delay: Duration) -> Result<(), Error> {
    to.set_nodelay(true)?;
    let (sent, arrives) = channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        for (due, bytes) in arrives {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
    thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            if sent.send((Instant::now() + delay, bytes[..read].to_vec())).is_err() {
                break;
            }
        }
    });
    Ok(())
}
