//! Giving an address up to a successor that listens on it already.
//!
//! The kernel spreads new connections over all who listen on an address. When
//! one of them closes, it resets those that it was making for that one: the
//! client's first packet is answered, its last word is still on the way. So
//! nothing is begun for this process any more before it closes. A first packet
//! that is dropped is sent again after a second (RFC 6298, section 2.1), and
//! goes to the successor then; what was begun is finished and accepted.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::bail;
use socket2::{SockFilter, SockRef, Socket};
use tokio::net::TcpListener;

/// How long a handshake that has begun may take to end: a packet's way to the
/// other side of the earth and back.
const HANDSHAKE: Duration = Duration::from_millis(250);

/// The sockets that are open, by the family of their address (proc_pid_net(5)).
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// A socket that listens, in those tables.
const LISTENS: &str = "0A";

/// Drops packets with SYN and without ACK: the first of a connection. The
/// filter sees a packet from its TCP header on, whose flags are at byte 13
/// (RFC 9293, section 3.1). Connections inherit it, and receive no such packet.
const NOTHING_NEW: [SockFilter; 5] = {
    const LOAD_BYTE: u16 = 0x30;
    const AND: u16 = 0x54;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const SYN: u32 = 0x02;
    const ACK: u32 = 0x10;
    [
        SockFilter::new(LOAD_BYTE, 0, 0, 13),
        SockFilter::new(AND, 0, 0, SYN | ACK),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, SYN),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ]
};

/// This process's own listening sockets, beside those who accept on them.
#[derive(Debug, Default)]
pub(super) struct Handover(Vec<(SocketAddr, Socket)>);

impl Handover {
    /// A socket to be given up one day. It has to be no other process's as
    /// well: nothing new would reach that either.
    pub(super) fn add(&mut self, address: SocketAddr, listener: &TcpListener) -> io::Result<()> {
        self.0.push((address, SockRef::from(listener).try_clone()?));
        Ok(())
    }

    /// Leaves new connections to the successor, where there is one, and waits
    /// until those that have begun can be accepted. Closing is the next step,
    /// for those who accept.
    pub(super) async fn let_go(self) {
        let shared = match shared_addresses().await {
            Ok(shared) => shared,
            Err(error) => return tracing::debug!(%error, "nobody can say whether there is a successor"),
        };
        let mut is_followed = false;
        for (address, socket) in self.0 {
            if shared.contains(&address) {
                tracing::info!(%address, "a successor listens");
                is_followed = true;
                if let Err(error) = socket.attach_filter(&NOTHING_NEW) {
                    tracing::warn!(%error, "connections that begin just now may be reset");
                }
            }
        }
        if is_followed {
            tokio::time::sleep(HANDSHAKE).await;
        }
    }
}

/// Refuses to be the third on an address: of two that wait only one can follow,
/// and whoever connects to the other one waits in vain.
///
/// # Errors
/// One serves there, and one waits to take over, or serves as well.
pub(super) async fn refuse_third(mut addresses: impl Iterator<Item = SocketAddr>) -> anyhow::Result<()> {
    let shared = match shared_addresses().await {
        Ok(shared) => shared,
        Err(error) => {
            tracing::debug!(%error, "nobody can say how many listen already");
            return Ok(());
        }
    };
    match addresses.find(|address| shared.contains(address)) {
        Some(address) => bail!(
            "two processes listen on {address} already, one that serves and one to take over; stop one of them first"
        ),
        None => Ok(()),
    }
}

/// The addresses that more than one socket listens on.
async fn shared_addresses() -> io::Result<HashSet<SocketAddr>> {
    let (mut seen, mut shared) = (HashSet::new(), HashSet::new());
    for table in TABLES {
        let table = match tokio::fs::read_to_string(table).await {
            Ok(table) => table,
            // A kernel without IPv6 has no table for it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for address in table.lines().filter_map(listening) {
            if !seen.insert(address) {
                shared.insert(address);
            }
        }
    }
    Ok(shared)
}

/// The address that a line of the table says a socket listens on.
fn listening(line: &str) -> Option<SocketAddr> {
    let mut columns = line.split_ascii_whitespace().skip(1);
    let (local, _, state) = (columns.next()?, columns.next()?, columns.next()?);
    let (address, port) = local.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    (state == LISTENS).then_some(SocketAddr::new(ip(address)?, port))
}

/// An address in hexadecimal digits, in words of 32 bits as the machine has
/// them in memory.
fn ip(digits: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(digits.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    match digits.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_is_shared_when_two_listen_on_it() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let bind = |address: SocketAddr| {
                let socket = match address {
                    SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4(),
                    SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6(),
                };
                let socket = socket.unwrap();
                socket.set_reuseport(true).unwrap();
                socket.bind(address).unwrap();
                socket.listen(1).unwrap()
            };
            let first = bind(any.parse().unwrap());
            let address = first.local_addr().unwrap();
            assert!(!shared_addresses().await.unwrap().contains(&address));
            let second = bind(address);
            assert!(shared_addresses().await.unwrap().contains(&address));
            drop(first);
            assert!(!shared_addresses().await.unwrap().contains(&address));
            drop(second);
        }
    }

    #[test]
    fn what_is_no_line_of_the_table_is_no_address() {
        for line in [
            "",
            "  sl  local_address rem_address   st",
            "0: 0100007F 00000000:0000 0A",
            "0: 0100007:1F90 x 0A",
            "0: 0100007é:1F90 x 0A",
            "0: 0100007F:1F90 00000000:0000 01",
        ] {
            assert_eq!(listening(line), None, "{line}");
        }
    }
}
