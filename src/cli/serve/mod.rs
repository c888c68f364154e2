//! `onceward serve`: the proxy.
//!
//! [`sockets`] says where it listens and [`handover`] how it stops to, [`store`]
//! what it remembers in; [`signals`] is what it is told, [`notify`] what it
//! tells its service manager, [`reload`] how it takes a changed file up.

mod handover;
mod notify;
mod reload;
mod signals;
mod sockets;
mod store;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use arc_swap::ArcSwap;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Logging, Usage};
use crate::admin::Admin;
use crate::clock::{Clock, SystemClock};
use crate::config::{self, Loaded};
use crate::destination::pool::Pools;
use crate::engine::Engine;
use crate::entropy;
use crate::ingress::Ingress;
use crate::orphans::{self, Orphans};
use crate::plan::Plan;
use crate::store::Store;
use crate::telemetry::{Metrics, log, trace};
use handover::Handover;
use signals::Asked;
pub(super) use signals::Signals;
pub(super) use sockets::Inherited;
use sockets::{Listening, Sockets};

/// How long what is left may take to be recorded once the grace is over.
const LAST_WRITES: Duration = Duration::from_secs(10);
/// How long the last bytes of the last answers may take to leave.
const LAST_BYTES: Duration = Duration::from_secs(1);
/// How often a store that could not be asked at the start is asked again which
/// routes have live records.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// How often a stop looks whether everything is answered.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Run the proxy
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("source").args(["config", "destination"]).required(true),
    after_help = "Examples:\n  onceward serve --config onceward.yaml\n  onceward serve --destination http://127.0.0.1:9000\n\nWith --destination, every POST and PATCH that carries an Idempotency-Key is guarded, and the rest passes through."
)]
pub(super) struct Arguments {
    /// The configuration file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "admin", "data", "scope"])]
    config: Option<PathBuf>,
    /// The API to stand in front of, instead of a file
    #[arg(long, value_name = "URL")]
    destination: Option<String>,
    /// The address to listen on [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// The address for health, readiness and metrics, or `off` [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// The folder of the embedded store [default: ./onceward-data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Who may share a key [default: {header:Authorization}]
    #[arg(long, value_name = "TEMPLATE")]
    scope: Option<String>,
    /// Take over from the process that serves now: listen beside it, and wait that long for it to give up the embedded folder, such as 60s
    #[arg(long, value_name = "DURATION", value_parser = config::duration)]
    takeover: Option<Duration>,
    #[command(flatten)]
    logging: Logging,
}

pub(super) fn run(arguments: Arguments) -> anyhow::Result<()> {
    // While there is one thread: it changes the environment.
    let inherited = Inherited::take()?;
    let Loaded { plan, warnings } = arguments.load()?;
    super::tell(&warnings);
    let _log = log::install(arguments.logging.log_format, &arguments.logging.log_level)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        // Before anything can be seen of the process: whoever sees it may
        // signal it.
        let signals = Signals::install()?;
        let _traces = trace::install()?;
        tokio::select! {
            ended = serve(plan, inherited, &arguments, signals) => ended,
            never = notify::keep_watch() => match never {},
        }
    });
    // One that was stopped before it served may still have a thread that waits
    // for the folder.
    runtime.shutdown_background();
    ended
}

async fn serve(plan: Plan, inherited: Inherited, arguments: &Arguments, mut signals: Signals) -> anyhow::Result<()> {
    let server = tokio::select! {
        started = Server::start(plan, inherited, arguments.takeover) => started?,
        () = signals.stop() => {
            tracing::info!("stopped before it served");
            return Ok(());
        }
    };
    notify::ready(&server.addresses);
    server.run(arguments.config.as_deref(), signals).await
}

impl Arguments {
    fn load(&self) -> anyhow::Result<Loaded> {
        let loaded = match (&self.config, &self.destination) {
            (Some(file), _) => config::load(file, &super::environment)?,
            (None, Some(destination)) => config::zero(
                destination,
                self.listen.as_deref(),
                self.admin.as_deref(),
                self.data.as_deref(),
                self.scope.as_deref(),
            )
            .map_err(Usage::from)?,
            (None, None) => bail!("give --config FILE or --destination URL"),
        };
        Ok(loaded)
    }
}

/// A running proxy.
pub(super) struct Server {
    ingress: Ingress,
    connections: TaskTracker,
    /// Whether the store could not be asked yet which routes have live records.
    is_unchecked: bool,
    /// Where it really listens.
    pub(super) addresses: Vec<SocketAddr>,
    /// The sockets that are this process's alone.
    own: Handover,
    /// Those who accept on the others.
    on_inherited: Vec<JoinHandle<()>>,
}

impl Server {
    /// Opens the store, listens on every address and begins to serve.
    ///
    /// Who takes over listens first: whoever connects while the predecessor
    /// gives up the folder waits in the queue of the socket. Who starts alone
    /// opens the store first: where there is none, nobody has connected.
    pub(super) async fn start(plan: Plan, inherited: Inherited, takeover: Option<Duration>) -> anyhow::Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let boot = entropy::boot_id()?;
        let mut sockets = Sockets::new(&plan, inherited, takeover.is_some())?;
        if takeover.is_some() {
            handover::refuse_third(plan.addresses()).await?;
        }
        let early = takeover.map(|_| sockets.for_clients(&plan)).transpose()?;
        if early.is_some() {
            tracing::info!("listens beside the process that serves now, if there is one");
            notify::waiting();
        }
        let store = store::open(plan.store.clone(), takeover, Arc::clone(&clock), boot).await?;
        let listeners = early.map_or_else(|| sockets.for_clients(&plan), Ok)?;
        let admin = match plan.admin.clone() {
            Some(admin) => Some((sockets.listen(admin.address).context("admin")?, admin)),
            None => None,
        };
        let is_unchecked = match store.lineages().await {
            Ok(uses) => {
                if let Err(orphans) = orphans::check(&plan, uses, store.now()) {
                    store.close().await?;
                    return Err(orphans.into());
                }
                false
            }
            Err(error) => {
                tracing::error!(%error, "the store cannot be asked yet; guarded requests are refused until it can");
                true
            }
        };
        announce(&*store, &plan).await;
        let engine = Engine::new(store, Arc::new(Pools::default()), clock, boot, Arc::new(Metrics::new()));
        let ingress = Ingress {
            engine: engine.clone(),
            plan: Arc::new(ArcSwap::from_pointee(plan)),
            closing: CancellationToken::new(),
        };
        engine.tend(Arc::clone(&ingress.plan));
        let connections = TaskTracker::new();
        let mut addresses = Vec::new();
        let mut own = Handover::default();
        let mut on_inherited = Vec::new();
        for (number, Listening { address, listener, is_inherited }) in listeners.into_iter().enumerate() {
            tracing::info!(%address, is_inherited, "listening");
            addresses.push(address);
            if !is_inherited {
                own.add(address, &listener)?;
            }
            let accepting = connections.spawn(ingress.clone().listen(number, listener, connections.clone()));
            if is_inherited {
                on_inherited.push(accepting);
            }
        }
        if let Some((Listening { address, listener, is_inherited }, plan)) = admin {
            tracing::info!(%address, is_inherited, "admin listening");
            // It answers to the very end: readiness has to be seen as false.
            let running = Arc::clone(&ingress.plan);
            tokio::spawn(Admin::new(engine, running, plan, address).listen(listener, CancellationToken::new()));
        }
        Ok(Self { ingress, connections, is_unchecked, addresses, own, on_inherited })
    }

    /// Serves until a signal says to stop; reloads `config` on SIGHUP.
    pub(super) async fn run(self, config: Option<&Path>, mut signals: Signals) -> anyhow::Result<()> {
        let found = self.until_stopped(config, &mut signals).await;
        self.stop().await?;
        found.map_or(Ok(()), |orphans| Err(orphans.into()))
    }

    /// Resolves when it is asked to stop, or has found that it must not serve.
    async fn until_stopped(&self, config: Option<&Path>, signals: &mut Signals) -> Option<Orphans> {
        let mut late_findings = pin!(self.find_orphans_late());
        loop {
            tokio::select! {
                orphans = &mut late_findings => {
                    tracing::error!("{orphans}");
                    return Some(orphans);
                }
                asked = signals.next() => match asked {
                    Asked::Stop => return None,
                    Asked::Reload => self.reload(config).await,
                }
            }
        }
    }

    /// Asks a store that could not be asked at the start, until it can. Until
    /// then it grants nothing. Only what is found ends this.
    async fn find_orphans_late(&self) -> Orphans {
        let engine = &self.ingress.engine;
        if self.is_unchecked {
            let uses = loop {
                tokio::time::sleep(ASK_AGAIN).await;
                if let Ok(uses) = engine.store.lineages().await {
                    break uses;
                }
            };
            if let Err(orphans) = orphans::check(&self.ingress.plan.load(), uses, engine.store.now()) {
                return orphans;
            }
        }
        std::future::pending().await
    }

    /// Waits until every request is answered, and for a moment until the
    /// connections are closed. One that was only opened, or has sent half a
    /// head, holds nobody up.
    async fn answered(&self) {
        while self.ingress.engine.capacity.requests.taken() > 0 {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        if timeout(LAST_BYTES, self.connections.wait()).await.is_err() {
            tracing::debug!("some connections had nothing to answer and are cut");
        }
    }

    /// Leaves those who connect from now on to whoever serves next, if anybody
    /// can.
    async fn make_way(&mut self) {
        // What waits on a socket that goes on is not taken out of it.
        for accepting in self.on_inherited.drain(..) {
            accepting.abort();
            if let Err(error) = accepting.await
                && error.is_panic()
            {
                tracing::error!(%error, "a listener had failed");
            }
        }
        std::mem::take(&mut self.own).let_go().await;
    }

    /// Stops: nothing new is taken, exchanges may finish within the grace, what
    /// is left is recorded as it stands.
    async fn stop(mut self) -> anyhow::Result<()> {
        notify::stopping();
        self.make_way().await;
        let engine = &self.ingress.engine;
        let grace = self.ingress.plan.load().shutdown_grace;
        tracing::info!(?grace, "stopping");
        let deadline = Instant::now() + grace;
        engine.drain();
        self.connections.close();
        let in_time = timeout_at(deadline, engine.idle()).await.is_ok();
        self.ingress.closing.cancel();
        if !in_time || timeout_at(deadline, self.answered()).await.is_err() {
            tracing::warn!("the grace is over; what still runs is recorded as it stands");
        }
        engine.end_grace();
        if timeout(LAST_WRITES, engine.idle()).await.is_err() {
            tracing::error!("not everything could be recorded; what was in flight is unknown after the next start");
        }
        engine.write_counts().await;
        engine.store.close().await.context("the store did not close cleanly")?;
        tracing::info!("stopped");
        Ok(())
    }
}

/// Tells the other nodes what this one makes from now on.
async fn announce(store: &dyn Store, plan: &Plan) {
    let lineages = plan.router.routes().iter().map(|route| route.lineage).collect();
    if let Err(error) = store.announce(lineages).await {
        tracing::debug!(%error, "the other nodes are told later which routes this one has");
    }
}
