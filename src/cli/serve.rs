//! `onceward serve`: the proxy.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use arc_swap::ArcSwap;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
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
use crate::ingress::{Ingress, listener};
use crate::model::record::BootId;
use crate::orphans::{self, Orphans};
use crate::plan::route::Route;
use crate::plan::{AdminPlan, Plan, StorePlan};
use crate::store::Store;
use crate::store::cached::{CachedStore, SHARED_FOR};
use crate::store::embedded::{self, EmbeddedStore};
use crate::store::memory::MemoryStore;
use crate::store::redis::{self, RedisStore};
use crate::telemetry::{Metrics, log};

/// How long what is left may take to be recorded once the grace is over.
const LAST_WRITES: Duration = Duration::from_secs(10);
/// How long the last bytes of the last answers may take to leave.
const LAST_BYTES: Duration = Duration::from_secs(1);
/// Answers that are kept in memory to be replayed at once, in bytes.
const CACHE_BYTES: u64 = 64 << 20;
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
    /// Wait that long for another process to give up the embedded folder, such as 60s
    #[arg(long, value_name = "DURATION", value_parser = config::duration)]
    takeover: Option<Duration>,
    #[command(flatten)]
    logging: Logging,
}

pub(super) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let Loaded { plan, warnings } = arguments.load()?;
    super::tell(&warnings);
    let _log = log::install(arguments.logging.log_format, &arguments.logging.log_level)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        // Before anything can be seen of the process: whoever sees it may
        // signal it.
        let signals = Signals::install()?;
        let server = Server::start(plan, arguments.takeover).await?;
        server.run(arguments.config.as_deref(), signals).await
    })
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
}

impl Server {
    /// Opens the store, binds every address and begins to serve.
    pub(super) async fn start(plan: Plan, takeover: Option<Duration>) -> anyhow::Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let boot = entropy::boot_id()?;
        // The store first: a process that takes over waits for its predecessor,
        // which holds the addresses as well.
        let store = open_store(plan.store.clone(), takeover, Arc::clone(&clock), boot).await?;
        let listeners = bind_all(&plan)?;
        let admin_listener = plan.admin.clone().map(bind_admin).transpose()?;
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
        let connections = TaskTracker::new();
        let mut addresses = Vec::new();
        for (number, listener) in listeners.into_iter().enumerate() {
            let address = listener.local_addr()?;
            tracing::info!(%address, "listening");
            addresses.push(address);
            connections.spawn(ingress.clone().listen(number, listener, connections.clone()));
        }
        if let Some((plan, listener)) = admin_listener {
            let address = listener.local_addr()?;
            tracing::info!(%address, "admin listening");
            // It answers to the very end: readiness has to be seen as false.
            let running = Arc::clone(&ingress.plan);
            tokio::spawn(Admin::new(engine, running, plan, address).listen(listener, CancellationToken::new()));
        }
        Ok(Self { ingress, connections, is_unchecked, addresses })
    }

    /// Serves until a signal says to stop; reloads `config` on SIGHUP.
    pub(super) async fn run(self, config: Option<&Path>, mut signals: Signals) -> anyhow::Result<()> {
        let mut late_findings = pin!(self.find_orphans_late());
        loop {
            tokio::select! {
                orphans = &mut late_findings => {
                    tracing::error!("{orphans}");
                    self.stop().await?;
                    return Err(orphans.into());
                }
                _ = signals.terminate.recv() => break,
                _ = signals.interrupt.recv() => break,
                _ = signals.hangup.recv() => self.reload(config).await,
            }
        }
        self.stop().await
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

    /// Takes a changed file up, whole or not at all.
    async fn reload(&self, config: Option<&Path>) {
        let Some(file) = config else {
            return tracing::warn!("SIGHUP: there is no configuration file to read again");
        };
        match self.load_again(file).await {
            Ok(plan) => {
                announce(&*self.ingress.engine.store, &plan).await;
                self.ingress.plan.store(Arc::new(plan));
                tracing::info!("the changed configuration is in force");
            }
            Err(error) => tracing::error!("the running configuration stays: {error:#}"),
        }
    }

    async fn load_again(&self, file: &Path) -> anyhow::Result<Plan> {
        let Loaded { plan, warnings } = config::load(file, &super::environment)?;
        for warning in warnings.iter() {
            tracing::warn!("{warning}");
        }
        let running = self.ingress.plan.load();
        if plan.store != running.store || !plan.addresses().eq(running.addresses()) || plan.admin != running.admin {
            bail!("`store`, `admin` and the addresses of `listen` cannot change while running; restart to change them");
        }
        let engine = &self.ingress.engine;
        let uses = engine.store.lineages().await.context("nobody can say which routes still have live records")?;
        orphans::check(&plan, uses, engine.store.now())?;
        warn_of_moved_routes(&running, &plan);
        Ok(plan)
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

    /// Stops: nothing new is taken, exchanges may finish within the grace, what
    /// is left is recorded as it stands.
    async fn stop(&self) -> anyhow::Result<()> {
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
        engine.store.close().await.context("the store did not close cleanly")?;
        tracing::info!("stopped");
        Ok(())
    }
}

/// Tells the other nodes what this one makes from now on.
async fn announce(store: &dyn Store, plan: &Plan) {
    let lineages = plan.router.routes().iter().map(|route| route.lineage()).collect();
    if let Err(error) = store.announce(lineages).await {
        tracing::debug!(%error, "the other nodes are told later which routes this one has");
    }
}

/// A route that guards another path than before still has its records, but the
/// old path is open: a late retry there passes unguarded.
fn warn_of_moved_routes(running: &Plan, next: &Plan) {
    for old in running.router.routes() {
        let is_moved = |new: &Arc<Route>| {
            let covers = old.methods.iter().all(|method| new.methods.contains(method));
            new.name == old.name && (!new.pattern.equals(&old.pattern) || new.host != old.host || !covers)
        };
        if next.router.routes().iter().any(is_moved) {
            tracing::warn!(route = %old.name, "the route no longer guards all that it did; retries of earlier requests there pass unguarded");
        }
    }
}

fn bind_all(plan: &Plan) -> anyhow::Result<Vec<TcpListener>> {
    let bind = |address: SocketAddr| listener::bind(address).with_context(|| format!("cannot listen on {address}"));
    plan.addresses().map(bind).collect()
}

fn bind_admin(plan: AdminPlan) -> anyhow::Result<(AdminPlan, TcpListener)> {
    let address = plan.address;
    let listener = listener::bind(address).with_context(|| format!("cannot listen on {address} (admin)"))?;
    Ok((plan, listener))
}

async fn open_store(
    plan: StorePlan,
    takeover: Option<Duration>,
    clock: Arc<dyn Clock>,
    boot: BootId,
) -> anyhow::Result<Arc<dyn Store>> {
    let cached = |store: Arc<dyn Store>, kept| CachedStore::new(store, CACHE_BYTES, kept);
    match plan {
        StorePlan::Memory { capacity } => {
            tracing::warn!("store.memory forgets every record when this process ends");
            Ok(Arc::new(MemoryStore::new(clock, boot, capacity)))
        }
        StorePlan::Redis(plan) => {
            let options = redis::Options { plan: *plan, clock: Arc::clone(&clock), boot };
            let store = RedisStore::open(options).await?;
            Ok(Arc::new(cached(Arc::new(store), Some(SHARED_FOR))))
        }
        StorePlan::Embedded { path, sync } => {
            let folder = path.clone();
            let options = embedded::Options { path, sync, takeover, clock: Arc::clone(&clock), boot };
            let store = tokio::task::spawn_blocking(move || EmbeddedStore::open(options)).await??;
            if let Some(kind) = forgetful_filesystem(&folder) {
                tracing::warn!(folder = %folder.display(), "the records are on {kind}, which forgets them when the machine or the container goes; use a disk or a volume");
            }
            Ok(Arc::new(cached(Arc::new(store), None)))
        }
    }
}

/// The kind of a filesystem that does not outlive its container or machine
/// (magic numbers of statfs(2)).
fn forgetful_filesystem(folder: &Path) -> Option<&'static str> {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    const OVERLAY: u64 = 0x794c_7630;
    match rustix::fs::statfs(folder).ok().map(|found| found.f_type as u64)? {
        TMPFS => Some("a tmpfs"),
        RAMFS => Some("a ramfs"),
        OVERLAY => Some("a container's own layer"),
        _ => None,
    }
}

/// The signals the process listens to.
pub(super) struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Takes the signals over from their default actions.
    pub(super) fn install() -> anyhow::Result<Self> {
        // A file over a size limit is an error of the write, not of the process.
        // The handler stays when its stream is dropped.
        drop(signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?);
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Resolves on SIGTERM or SIGINT.
    pub(super) async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
