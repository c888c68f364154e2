//! The sockets that clients and operators connect to: handed down by a service
//! manager, or bound.
//!
//! Two processes never share an address by mistake. A socket is bound alone,
//! and opened to others (`SO_REUSEPORT`) only when it listens already: from
//! then on a successor that says so itself may listen beside it, and the kernel
//! spreads new connections over both until one of them goes.

use std::fmt::Write;
use std::io;
use std::net::SocketAddr;

use anyhow::{Context, bail};
use listenfd::ListenFd;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket};

use crate::plan::Plan;

/// How many connections may wait to be accepted.
const BACKLOG: u32 = 4096;

/// Listening sockets that whoever started the process handed down to it
/// (sd_listen_fds(3)).
#[derive(Debug, Default)]
pub(in crate::cli) struct Inherited(Vec<(SocketAddr, std::net::TcpListener)>);

impl Inherited {
    /// Takes them, and the variables that announce them out of the
    /// environment. For the very beginning: the environment is nobody else's
    /// yet, and the sockets are.
    ///
    /// # Errors
    /// One of them is no TCP socket, or does not listen.
    pub(super) fn take() -> anyhow::Result<Self> {
        let mut handed = ListenFd::from_env();
        let mut sockets = Vec::new();
        for index in 0..handed.len() {
            let unusable = || format!("the inherited socket number {} cannot be used", index + 1);
            let Some(socket) = handed.take_tcp_listener(index).with_context(unusable)? else { continue };
            let address = socket.local_addr().with_context(unusable)?;
            if !SockRef::from(&socket).is_listener().with_context(unusable)? {
                bail!("the inherited socket on {address} does not listen (with systemd: say Accept=no)");
            }
            sockets.push((address, socket));
        }
        Ok(Self(sockets))
    }
}

/// A socket that listens.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) address: SocketAddr,
    pub(super) listener: TcpListener,
    /// Whether it is others' as well, and goes on when this process ends.
    pub(super) is_inherited: bool,
}

/// Makes the sockets of the configured addresses.
#[derive(Debug)]
pub(super) struct Sockets {
    inherited: Inherited,
    /// Whether another process may listen on them already.
    is_takeover: bool,
    /// The ports of `0.0.0.0`. `[::]` with the same port is for IPv6 alone;
    /// otherwise it is for both.
    taken_in_ipv4: Vec<u16>,
}

impl Sockets {
    /// # Errors
    /// A socket was inherited that no configured address names: whoever
    /// connects to it would wait for ever.
    pub(super) fn new(plan: &Plan, inherited: Inherited, is_takeover: bool) -> anyhow::Result<Self> {
        let mut unclaimed: Vec<_> = plan.addresses().chain(plan.admin.iter().map(|admin| admin.address)).collect();
        for (address, _) in &inherited.0 {
            match unclaimed.iter().position(|configured| configured == address) {
                Some(index) => drop(unclaimed.swap_remove(index)),
                None => bail!(no_such_address(plan, *address)),
            }
        }
        let addresses = plan.addresses().chain(plan.admin.iter().map(|admin| admin.address));
        let taken_in_ipv4 = addresses
            .filter(|address| address.is_ipv4() && address.ip().is_unspecified())
            .map(|address| address.port())
            .collect();
        Ok(Self { inherited, is_takeover, taken_in_ipv4 })
    }

    /// Every socket for clients.
    pub(super) fn for_clients(&mut self, plan: &Plan) -> anyhow::Result<Vec<Listening>> {
        plan.addresses().map(|address| self.listen(address)).collect()
    }

    /// The socket on that address.
    pub(super) fn listen(&mut self, address: SocketAddr) -> anyhow::Result<Listening> {
        let inherited = self.inherited.0.iter().position(|(inherited, _)| *inherited == address);
        let listener = match inherited {
            Some(index) => adopt(self.inherited.0.swap_remove(index).1),
            None => bind(address, self.is_takeover, self.taken_in_ipv4.contains(&address.port())),
        };
        let listener = listener.with_context(|| match self.is_takeover {
            false => format!("cannot listen on {address}"),
            true => format!("cannot listen on {address} beside the process to take over from"),
        })?;
        Ok(Listening { address: listener.local_addr()?, listener, is_inherited: inherited.is_some() })
    }
}

fn no_such_address(plan: &Plan, inherited: SocketAddr) -> String {
    let mut text = format!("a socket on {inherited} was inherited, and no address of the configuration is that one:");
    for address in plan.addresses() {
        _ = write!(text, " listen {address},");
    }
    match &plan.admin {
        Some(admin) => _ = write!(text, " admin {}", admin.address),
        None => text.push_str(" admin off"),
    }
    text
}

fn adopt(socket: std::net::TcpListener) -> io::Result<TcpListener> {
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket)
}

fn bind(address: SocketAddr, is_takeover: bool, is_ipv6_alone: bool) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    if address.is_ipv6() && is_ipv6_alone {
        SockRef::from(&socket).set_only_v6(true)?;
    }
    if is_takeover {
        socket.set_reuseport(true)?;
    }
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?;
    // Not before: of two that start at once, both could share then.
    SockRef::from(&listener).set_reuse_port(true)?;
    Ok(listener)
}
