//! `onceward records`: the admin API from a shell.

mod api;
mod decide;
mod list;
mod show;

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Subcommand};

use self::api::Api;
use super::Usage;
use crate::config;

/// Where the admin side listens where nothing else is said.
const DEFAULT_ADMIN: &str = "http://127.0.0.1:8081";

/// See, resolve and clear away records of a running proxy
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:\n  onceward records list --state unknown\n  onceward records show 5f0c7d0e9c6f4bb1a4a0c7c1d2e3f405\n  onceward records show --route create-order --key order-1042\n  onceward records resolve 5f0c7d0e9c6f4bb1a4a0c7c1d2e3f405 --not-executed --operator ana --reason 'not in the ledger, ticket 118'"
)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    List(list::Arguments),
    Show(show::Arguments),
    Resolve(decide::Resolve),
    Forget(decide::Forget),
    Erase(decide::Erase),
}

/// Which proxy is meant.
#[derive(Debug, Args)]
#[command(next_help_heading = "Which proxy")]
struct Reach {
    /// The admin address of the proxy [env: ONCEWARD_ADMIN] [default: http://127.0.0.1:8081]
    #[arg(long, value_name = "URL")]
    admin: Option<String>,
    /// The admin token [env: ONCEWARD_ADMIN_TOKEN]
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// Read the admin address and the token from this configuration file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["admin", "token"])]
    config: Option<PathBuf>,
}

impl Reach {
    fn api(&self) -> anyhow::Result<Api> {
        // The file may well take its token from the same variable.
        let Some(file) = &self.config else {
            let admin = self.admin.clone().or_else(|| super::environment("ONCEWARD_ADMIN"));
            let token = self.token.clone().or_else(|| super::environment("ONCEWARD_ADMIN_TOKEN"));
            return Api::at(admin.as_deref().unwrap_or(DEFAULT_ADMIN), token);
        };
        let plan = config::load(file, &super::environment)?.plan;
        let admin = plan.admin.context("this configuration has no admin side (`admin.address: off`)")?;
        let token = admin.token.as_ref().map(|token| token.reveal().to_owned());
        Api::at(&format!("http://{}", reachable(admin.address)), token)
    }
}

/// Who listens on all addresses is reached on loopback.
fn reachable(mut address: std::net::SocketAddr) -> std::net::SocketAddr {
    if address.ip().is_unspecified() {
        let loopback: std::net::IpAddr = match address.ip() {
            std::net::IpAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            std::net::IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        };
        address.set_ip(loopback);
    }
    address
}

pub(super) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match arguments.command {
            Command::List(arguments) => list::run(arguments).await,
            Command::Show(arguments) => show::run(arguments).await,
            Command::Resolve(arguments) => decide::resolve(arguments).await,
            Command::Forget(arguments) => decide::forget(arguments).await,
            Command::Erase(arguments) => decide::erase(arguments).await,
        }
    })
}

/// A record as it is named on the command line: its id, or the beginning of it.
async fn full_id(api: &Api, given: &str) -> anyhow::Result<String> {
    let given = &given.to_ascii_lowercase();
    const ID: usize = 32;
    const SHORTEST: usize = 6;
    let is_hex = given.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    if !is_hex || !(SHORTEST..=ID).contains(&given.len()) {
        let message =
            format!("`{given}` is no record id: it has 32 hexadecimal digits; {SHORTEST} of them may be enough");
        return Err(Usage::new(message).into());
    }
    if given.len() == ID {
        return Ok(given.to_owned());
    }
    let mut found: Vec<String> = Vec::new();
    api.walk("/v1/records?limit=1000", |record| {
        if let Some(id) = record["id"].as_str().filter(|id| id.starts_with(given)) {
            found.push(id.to_owned());
        }
        true
    })
    .await?;
    found.sort();
    found.dedup();
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => anyhow::bail!("no record's id begins with {given}"),
        several => anyhow::bail!("{} records' ids begin with {given}; give more of it", several.len()),
    }
}

/// A text as a query takes it.
fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}
