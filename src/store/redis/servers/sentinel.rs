//! Asks the sentinels who the master is.
//!
//! What they say is where to look, not the truth: whoever connects there still
//! asks the server itself whether it is a master.

use std::sync::Arc;

use redis::Value;

use super::connect::{Address, Connected, answer};
use super::fault::Fault;
use super::login::Login;
use super::shared::Shared;
use crate::plan::RedisUrl;

/// The sentinels of one master.
#[derive(Debug)]
pub(super) struct Sentinels {
    shared: Arc<Shared>,
    master: String,
    nodes: Vec<(Address, Login)>,
    /// The one that answered last, and the connection to it.
    kept: Option<(usize, Connected)>,
}

impl Sentinels {
    pub(super) fn new(shared: Arc<Shared>, master: &str, nodes: &[RedisUrl]) -> Self {
        let nodes = nodes.iter().map(|url| (Address::of(url), Login::of(&RedisUrl { database: 0, ..url.clone() })));
        Self { shared, master: master.to_owned(), nodes: nodes.collect(), kept: None }
    }

    /// The master's address, from the first that knows it.
    pub(super) async fn locate(&mut self) -> Result<Address, Fault> {
        let first = match self.kept.take() {
            Some((index, connected)) => match self.ask(index, &connected).await {
                Ok(address) => {
                    self.kept = Some((index, connected));
                    return Ok(address);
                }
                // A new connection to the same one may do; if not, the next.
                Err(_) => index,
            },
            None => 0,
        };
        let mut last = Fault::Unavailable("there is no sentinel".to_owned());
        for step in 0..self.nodes.len() {
            let index = (first + step) % self.nodes.len();
            match self.ask_anew(index).await {
                Ok(address) => return Ok(address),
                Err(fault) => last = fault,
            }
        }
        Err(last)
    }

    async fn ask_anew(&mut self, index: usize) -> Result<Address, Fault> {
        let Some((address, login)) = self.nodes.get(index) else {
            return Err(Fault::Unavailable("there is no such sentinel".to_owned()));
        };
        let connected = self.shared.dialer.dial(address, login).await;
        let connected = connected.map_err(|fault| Fault::Unavailable(format!("sentinel {}", fault.why())))?;
        let master = self.ask(index, &connected).await?;
        self.kept = Some((index, connected));
        Ok(master)
    }

    async fn ask(&self, index: usize, connected: &Connected) -> Result<Address, Fault> {
        let sentinel = self.nodes.get(index).map(|(address, _)| address.to_string()).unwrap_or_default();
        let mut question = redis::cmd("SENTINEL");
        question.arg("get-master-addr-by-name").arg(&self.master);
        let mut connection = connected.connection.clone();
        let reply = answer(self.shared.dialer.timeout(), connection.send_packed_command(&question)).await;
        let unavailable = |why: String| Fault::Unavailable(format!("sentinel {sentinel}: {why}"));
        let reply = reply.map_err(|fault| unavailable(fault.why()))?;
        connected.wire.answered();
        match reply {
            Value::Array(parts) => pair(&parts).ok_or_else(|| unavailable("an address that is none".to_owned())),
            Value::ServerError(error)
                if error.details().is_some_and(|details| details.starts_with("unknown command")) =>
            {
                Err(unavailable("it is no sentinel".to_owned()))
            }
            Value::ServerError(error) => Err(unavailable(Fault::of_reply(&error).why())),
            _ => Err(unavailable(format!("knows no master named {}", self.master))),
        }
    }
}

fn pair(parts: &[Value]) -> Option<Address> {
    let [Value::BulkString(host), Value::BulkString(port)] = parts else { return None };
    let host = std::str::from_utf8(host).ok().filter(|host| !host.is_empty())?;
    Some(Address { host: host.to_owned(), port: std::str::from_utf8(port).ok()?.parse().ok()? })
}
