//! `onceward check`: is this file good, and what does it say?

use std::io::Write;
use std::path::PathBuf;

use crate::config::{self, show_duration};
use crate::plan::StorePlan;
use crate::plan::policy::OnUnknown;
use crate::plan::reconcile::Reconcile;
use crate::plan::route::Route;

/// Validate a configuration file; print its routes, and warnings
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  onceward check --config onceward.yaml")]
pub(super) struct Arguments {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

pub(super) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let loaded = config::load(&arguments.config, &super::environment)?;
    super::tell(&loaded.warnings);
    let mut out = std::io::stdout().lock();
    writeln!(out, "store: {}", store(&loaded.plan.store))?;
    for route in loaded.plan.router.routes() {
        writeln!(out, "{}", line(route))?;
    }
    writeln!(out, "everything else passes through to {}", loaded.plan.destination)?;
    Ok(())
}

/// The store in one line, without credentials.
fn store(plan: &StorePlan) -> String {
    match plan {
        StorePlan::Embedded { path, .. } => format!("embedded · {}", path.display()),
        StorePlan::Redis(redis) => format!(
            "{} · prefix {} · replicas {} · timeout {}{}",
            redis.servers,
            redis.prefix,
            redis.replicas,
            show_duration(redis.timeout),
            if redis.strict { " · strict" } else { "" },
        ),
        StorePlan::Memory { .. } => "memory, forgotten when the process ends".into(),
    }
}

/// How a destination is asked, in short.
pub(super) fn asks(reconcile: &Reconcile) -> String {
    format!(
        "asks {} {}, settles after {}, gives up after {}",
        reconcile.request.method,
        reconcile.request.path.as_str(),
        show_duration(reconcile.settle),
        show_duration(reconcile.give_up)
    )
}

fn line(route: &Route) -> String {
    let methods: Vec<&str> = route.methods.iter().map(http::Method::as_str).collect();
    let policy = &route.policy;
    let on_unknown = match &policy.on_unknown {
        OnUnknown::Hold => "hold".into(),
        OnUnknown::Forward => "forward".into(),
        OnUnknown::Reconcile(reconcile) => format!("reconcile ({})", asks(reconcile)),
    };
    format!(
        "{}: {} {}{} → {} · key {}{} · scope {:?} · retention {} · guard {} · wait {} · on_unknown {on_unknown}",
        route.name,
        methods.join(","),
        route.host.as_deref().unwrap_or(""),
        route.pattern.as_str(),
        route.destination,
        policy.key.as_str(),
        if policy.key_required { "" } else { " (optional)" },
        policy.scope.as_str(),
        show_duration(policy.retention),
        show_duration(policy.guard),
        show_duration(policy.wait),
    )
}
