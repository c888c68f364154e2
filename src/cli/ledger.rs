//! `onceward ledger`: the practice destination alone.

use std::io::Write;
use std::net::SocketAddr;

use anyhow::Context;

use crate::ledger::{HELP, Ledger};

/// Run the practice ledger: an API that makes orders, counts them, and fails on request
#[derive(Debug, clap::Args)]
#[command(after_help = format!("Example:\n  onceward ledger --listen 127.0.0.1:9000\n\n{HELP}"))]
pub(super) struct Arguments {
    /// The address to listen on
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9000")]
    listen: SocketAddr,
}

/// Binds the ledger, or says which address cannot be had.
pub(super) async fn bind(address: SocketAddr) -> anyhow::Result<Ledger> {
    Ledger::bind(address).await.with_context(|| format!("cannot listen on {address} (practice ledger)"))
}

pub(super) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let ledger = bind(arguments.listen).await?;
        writeln!(std::io::stdout(), "ledger listening on http://{}", ledger.local_addr())?;
        let mut signals = super::serve::Signals::install()?;
        ledger.serve(signals.stop()).await;
        Ok(())
    })
}
