//! `onceward demo`: what a newcomer tries first.

use std::io::Write;
use std::net::SocketAddr;

use super::Usage;
use super::ledger::bind as bind_ledger;
use crate::config;
use crate::telemetry::log;

/// Run a practice API with the proxy in front of it, and print commands to paste
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  onceward demo")]
pub(super) struct Arguments {
    /// The proxy's address
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The practice API's address
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9000")]
    ledger: SocketAddr,
    /// The address for health and metrics
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8081")]
    admin: SocketAddr,
}

pub(super) fn run(arguments: Arguments) -> anyhow::Result<()> {
    // Records of a demo are of no use afterwards.
    let folder = std::env::temp_dir().join(format!("onceward-demo-{}", std::process::id()));
    let _log = log::install(log::Format::Text, "warn")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ran = runtime.block_on(async {
        let signals = super::serve::Signals::install()?;
        let ledger = bind_ledger(arguments.ledger).await?;
        let ledger_url = format!("http://{}", ledger.local_addr());
        let (listen, admin) = (arguments.listen.to_string(), arguments.admin.to_string());
        let loaded = config::zero(&ledger_url, Some(&listen), Some(&admin), Some(&folder), None);
        let loaded = loaded.map_err(Usage::from)?;
        tokio::spawn(ledger.serve(std::future::pending::<()>()));
        let server = super::serve::Server::start(loaded.plan, super::serve::Inherited::default(), None).await?;
        let proxy = server.addresses.first().copied().unwrap_or(arguments.listen);
        write!(std::io::stdout(), "{}", tour(proxy, &ledger_url, arguments.admin))?;
        server.run(None, signals).await
    });
    if let Err(error) = std::fs::remove_dir_all(&folder) {
        tracing::debug!(%error, "the demo's records were not removed");
    }
    ran
}

fn tour(proxy: SocketAddr, ledger: &str, admin: SocketAddr) -> String {
    let program = std::env::current_exe().map_or_else(|_| "onceward".into(), |path| path.display().to_string());
    format!(
        r#"A practice API that makes orders runs on {ledger}, and onceward in front of it on http://{proxy}.
Paste these into another terminal; stop the demo with Ctrl-C.

1. An order, and its retry. One order is made; the retry gets the same answer, marked Idempotent-Replayed.
   curl -i http://{proxy}/orders -H 'Idempotency-Key: k-1' -H 'Content-Type: application/json' -d '{{"amount":100}}'
   curl -i http://{proxy}/orders -H 'Idempotency-Key: k-1' -H 'Content-Type: application/json' -d '{{ "amount": 1.0e2 }}'

2. The same key for something else. 422, and the API sees nothing.
   curl -i http://{proxy}/orders -H 'Idempotency-Key: k-1' -H 'Content-Type: application/json' -d '{{"amount":999}}'

3. The client gives up while the API is busy. The order is made once, and the retry gets its answer.
   curl -i --max-time 1 http://{proxy}/orders -H 'Idempotency-Key: k-2' -H 'Ledger-Delay-After: 3s' -d '{{"amount":200}}'
   curl -i http://{proxy}/orders -H 'Idempotency-Key: k-2' -H 'Ledger-Delay-After: 3s' -d '{{"amount":200}}'

4. The API makes the order, and its answer is lost. Nobody knows the outcome, and nobody guesses:
   502 outcome-unknown now, 409 outcome-unknown for the retry, and still one order.
   curl -i http://{proxy}/orders -H 'Idempotency-Key: k-3' -H 'Ledger-Drop: after' -d '{{"amount":300}}'
   curl -i http://{proxy}/orders -H 'Idempotency-Key: k-3' -H 'Ledger-Drop: after' -d '{{"amount":300}}'

5. An operator looks at the API, finds the order, and says so: retries get the answer that was found.
   {program} records show --admin http://{admin} --route '/{{*rest}}' --key k-3
   {program} records list --admin http://{admin} --state unknown
   (then `{program} records resolve ID --completed --status 201 --body … --operator YOU --reason …`)

6. Count at the API: one execution a key.
   curl {ledger}/stats
"#
    )
}
