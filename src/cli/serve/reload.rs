//! A changed configuration file: taken up whole, or not at all.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};

use super::{Server, announce, notify};
use crate::config::{self, Loaded};
use crate::orphans;
use crate::plan::Plan;
use crate::plan::route::Route;

impl Server {
    /// Takes a changed file up, whole or not at all.
    pub(super) async fn reload(&self, config: Option<&Path>) {
        notify::reloading();
        let is_in_force = self.take_up(config).await;
        notify::reloaded(is_in_force);
    }

    /// Whether a changed file is in force now.
    async fn take_up(&self, config: Option<&Path>) -> bool {
        let Some(file) = config else {
            tracing::warn!("SIGHUP: there is no configuration file to read again");
            return false;
        };
        match self.load_again(file).await {
            Ok(plan) => {
                announce(&*self.ingress.engine.store, &plan).await;
                self.ingress.plan.store(Arc::new(plan));
                tracing::info!("the changed configuration is in force");
                true
            }
            Err(error) => {
                tracing::error!("the running configuration stays: {error:#}");
                false
            }
        }
    }

    async fn load_again(&self, file: &Path) -> anyhow::Result<Plan> {
        let Loaded { plan, warnings } = config::load(file, &crate::cli::environment)?;
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
