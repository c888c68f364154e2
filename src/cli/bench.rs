//! `onceward bench`: load with repeats in it, and a check that counts.

use std::fs::File;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use indicatif::{ProgressBar, ProgressStyle};
use tokio_util::sync::CancellationToken;

use super::{Usage, say};
use crate::bench::{self, Counter, Load, Mix, News, Pace, Stage, Summary, Target};
use crate::config;
use crate::entropy;
use crate::tls::{ClientTls, authorities, system_authorities};

const EXAMPLES: &str = "Examples:
  onceward demo                                    in another terminal, then
  onceward bench                                   200 requests a second for 10 s, 15 % repeats
  onceward bench --rate 100..2000 --duration 60s   ever faster
  onceward bench --connections 64 --duplicates 0   as fast as it goes, nothing repeated
  onceward bench --find-max 20ms                   the highest rate whose p99 is below 20 ms
  onceward bench --json new.json --compare old.json

Shares are of all requests: `5%` or `0.05`. Requests are sent when they are due, whatever became
of those before, and latency counts from then; with --connections and without --rate, each
connection sends when it was answered (closed loop). The check counts at the practice ledger, or
at any URL whose answer is JSON with `by_key`, an object with the number of executions of each
key. Exit status 1: the check failed, or there was nothing to check.";

/// Send load with repeats in it, and check that no key was executed twice
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// Where requests are sent
    #[arg(default_value = "http://127.0.0.1:8080/orders", value_name = "URL")]
    target: Uri,
    /// Requests a second: `500`, a ramp `100..2000`, or steps `100,500,1000` of the same length [default: 200]
    #[arg(long, value_name = "RATE", value_parser = rates)]
    rate: Option<Rates>,
    /// How many connections there are at most; without --rate, each sends when it was answered
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_000))]
    connections: Option<u32>,
    /// How long is measured
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = config::duration)]
    duration: Duration,
    /// How long load is sent before that
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = config::duration)]
    warm_up: Duration,
    /// The share of repeats, a third of each of the three kinds below
    #[arg(long, value_name = "SHARE", default_value = "15%", value_parser = share, conflicts_with_all = ["immediate", "concurrent", "late"])]
    duplicates: f64,
    /// The share of repeats that are sent the moment the first is answered
    #[arg(long, value_name = "SHARE", value_parser = share)]
    immediate: Option<f64>,
    /// The share of repeats that are sent in the same instant as the first
    #[arg(long, value_name = "SHARE", value_parser = share)]
    concurrent: Option<f64>,
    /// The share of repeats that are sent --later
    #[arg(long, value_name = "SHARE", value_parser = share)]
    late: Option<f64>,
    /// How much later
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = config::duration)]
    later: Duration,
    /// The share of requests with a known key and another body, sent --later
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = share)]
    mismatches: f64,
    /// The share of requests whose client hangs up after --patience; each is repeated --later
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = share)]
    hang_ups: f64,
    /// How long a client waits that hangs up
    #[arg(long, value_name = "DURATION", default_value = "1ms", value_parser = config::duration)]
    patience: Duration,
    /// Draw from so many keys [default: every first request has a new one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    keys: Option<u64>,
    /// How large bodies are, in bytes; smaller than an order they are as small as one
    #[arg(long, value_name = "BYTES", default_value_t = 200, value_parser = clap::value_parser!(u32).range(..=67_108_864))]
    body_size: u32,
    /// What bodies and draws are made of
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The method of requests
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "POST")]
    method: Method,
    /// A field that every request carries
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The field that carries the key
    #[arg(long, value_name = "NAME", default_value = "Idempotency-Key")]
    key_header: HeaderName,
    /// Speak HTTP/2; without TLS by prior knowledge
    #[arg(long)]
    http2: bool,
    /// Certificate authorities to believe, in PEM [default: the system's]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// How long one answer may take
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = config::duration)]
    timeout: Duration,
    /// Where executions are counted
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9000/stats")]
    count: Uri,
    /// Check answers alone, and count nothing
    #[arg(long, conflicts_with = "count")]
    no_count: bool,
    /// Search for the highest rate whose p99 is below this; each step lasts --duration
    #[arg(long, value_name = "DURATION", value_parser = config::duration, conflicts_with_all = ["json", "csv", "compare"])]
    find_max: Option<Duration>,
    /// Write the result as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a line for each second as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Show ratios to an earlier result that was written with --json
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let old = arguments.compare.as_deref().map(read).transpose()?;
    // Better found out before than after.
    let json = arguments.json.as_deref().map(create).transpose()?;
    let csv = arguments.csv.as_deref().map(create).transpose()?;
    let bench = Bench::new(arguments)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let stop = CancellationToken::new();
        let mut signals = super::serve::Signals::install()?;
        let stopped = stop.clone();
        tokio::spawn(async move {
            signals.stop().await;
            stopped.cancel();
        });
        if let Some(bound) = arguments.find_max {
            return bench.find_max(bound, &stop).await;
        }
        let summary = bench.run(bench.load.clone(), &stop).await?;
        write!(stdout(), "{}", bench::picture(&summary))?;
        if let Some(mut file) = json {
            serde_json::to_writer_pretty(&mut file, &summary)?;
            file.write_all(b"\n")?;
        }
        if let Some(mut file) = csv {
            file.write_all(summary.to_csv().as_bytes())?;
        }
        if let Some(old) = old {
            write!(stdout(), "\n{}", bench::comparison(&summary.beside(&old)))?;
        }
        judge(&summary)
    })
}

/// Whether the run proves what it was made for.
fn judge(summary: &Summary) -> anyhow::Result<()> {
    if !summary.check.passed() {
        bail!("the check failed: see above");
    }
    if summary.check.keys == 0 {
        bail!("no request succeeded, so nothing was checked; is the target right, and the proxy running?");
    }
    Ok(())
}

/// What all runs of one call have in common.
struct Bench {
    load: Load,
    target: Target,
    counter: Option<Counter>,
}

impl Bench {
    fn new(arguments: &Arguments) -> anyhow::Result<Self> {
        let mix = mix(arguments)?;
        let is_open = arguments.rate.is_some() || arguments.connections.is_none() || arguments.find_max.is_some();
        let pace = match &arguments.rate {
            _ if !is_open => Pace::Closed(arguments.duration),
            Some(rates) => Pace::Open(rates.lasting(arguments.duration)),
            None => Pace::Open(Rates(vec![(200.0, 200.0)]).lasting(arguments.duration)),
        };
        if arguments.duration.is_zero() {
            return Err(Usage::new("--duration is how long is measured, and more than nothing").into());
        }
        let connections = arguments.connections.map_or(if arguments.http2 { 8 } else { 1_000 }, |many| many as usize);
        let secure = [&arguments.target, &arguments.count].into_iter().any(Target::is_secure);
        let tls = if secure { Some(tls(arguments.ca.as_deref())?) } else { None };
        let at = |url: &Uri, http2| Target::at(url, tls.clone(), http2).map_err(|error| Usage::new(error.to_string()));
        let target = at(&arguments.target, arguments.http2)?;
        let counter = match arguments.no_count {
            true => None,
            false => Some(Counter::new(arguments.count.clone(), at(&arguments.count, false)?)),
        };
        let load = Load {
            target: arguments.target.clone(),
            method: arguments.method.clone(),
            headers: arguments.headers.iter().cloned().collect::<HeaderMap>(),
            key_header: arguments.key_header.clone(),
            pace,
            http2: arguments.http2,
            warm_up: arguments.warm_up,
            connections,
            timeout: arguments.timeout,
            mix,
        };
        Ok(Self { load, target, counter })
    }

    async fn run(&self, load: Load, stop: &CancellationToken) -> anyhow::Result<Summary> {
        let bar = bar(load.warm_up + load.pace.lasts());
        let (_, name) = entropy::attempt()?;
        let tell = |news: News| {
            bar.set_position(news.elapsed.min(news.lasts).as_millis() as u64);
            bar.set_message(format!(
                "{:.0}/s  p50 {}  p99 {}  {} errors",
                news.rate,
                bench::time(news.p50),
                bench::time(news.p99),
                news.errors
            ));
        };
        let ran = bench::run(load, self.target.clone(), self.counter.as_ref(), name, stop, tell).await;
        bar.finish_and_clear();
        ran.map_err(|error| anyhow::anyhow!("{error}; --count URL names another, and --no-count goes without"))
    }

    /// Doubles the rate while the bound holds, and then halves the step until the
    /// rate is known to a twentieth.
    async fn find_max(&self, bound: Duration, stop: &CancellationToken) -> anyhow::Result<()> {
        let mut rate = match &self.load.pace {
            Pace::Open(stages) => stages.first().map_or(200.0, |stage| stage.from),
            Pace::Closed(_) => 200.0,
        };
        let (mut holds, mut fails) = (None::<f64>, None::<f64>);
        loop {
            let stage = Stage { from: rate, to: rate, lasts: self.load.pace.lasts() };
            let load = Load { pace: Pace::Open(vec![stage]), ..self.load.clone() };
            let summary = self.run(load, stop).await?;
            if stop.is_cancelled() {
                bail!("stopped before the rate was found");
            }
            judge(&summary).inspect_err(|_| _ = write!(stdout(), "{}", bench::picture(&summary)))?;
            let p99 = Duration::from_micros(summary.latency.p99);
            // One that answers fewer than are sent falls behind, however slowly.
            let keeps_up = summary.rate >= 0.97 * rate && summary.count("error") == 0;
            let is_within = p99 <= bound && keeps_up;
            writeln!(
                stdout(),
                "{rate:>9.0}/s  answered {:>9.1}/s  p99 {:>8}  {}",
                summary.rate,
                bench::time(summary.latency.p99),
                if is_within { "holds" } else { "does not hold" }
            )?;
            if is_within {
                holds = Some(rate)
            } else {
                fails = Some(rate)
            }
            rate = match (holds, fails) {
                (Some(holds), Some(fails)) if fails / holds < 1.05 => break,
                (Some(holds), Some(fails)) => f64::midpoint(holds, fails),
                (Some(holds), None) => holds * 2.0,
                (None, Some(fails)) if fails < 2.0 => bail!("not even one request a second holds the bound"),
                (None, _) => rate / 2.0,
            };
        }
        let found = holds.unwrap_or_default();
        writeln!(stdout(), "\nthe highest rate whose p99 is below {}: {found:.0}/s", config::show_duration(bound))?;
        Ok(())
    }
}

fn mix(arguments: &Arguments) -> anyhow::Result<Mix> {
    let third = arguments.duplicates / 3.0;
    let (immediate, concurrent, late) = match (arguments.immediate, arguments.concurrent, arguments.late) {
        (None, None, None) => (third, third, third),
        (immediate, concurrent, late) => {
            (immediate.unwrap_or_default(), concurrent.unwrap_or_default(), late.unwrap_or_default())
        }
    };
    let mix = Mix {
        immediate,
        concurrent,
        late,
        mismatched: arguments.mismatches,
        hung_up: arguments.hang_ups,
        later: arguments.later,
        patience: arguments.patience,
        keys: arguments.keys,
        body_size: arguments.body_size as usize,
        seed: arguments.seed,
    };
    if mix.firsts() < 0.01 || mix.firsts() < mix.hung_up {
        return Err(Usage::new(
            "repeats, mismatches and hang-ups leave too few first requests; together they may be 99 %, hang-ups counted twice",
        )
        .into());
    }
    Ok(mix)
}

/// Rates one after the other, each from one to another.
#[derive(Debug, Clone)]
struct Rates(Vec<(f64, f64)>);

impl Rates {
    /// All of them in that time, each as long as the others.
    fn lasting(&self, duration: Duration) -> Vec<Stage> {
        let lasts = duration / u32::try_from(self.0.len()).unwrap_or(u32::MAX).max(1);
        self.0.iter().map(|(from, to)| Stage { from: *from, to: *to, lasts }).collect()
    }
}

fn rates(text: &str) -> Result<Rates, String> {
    let rate = |text: &str| match text.trim().parse::<f64>() {
        Ok(rate) if (0.0..=1e6).contains(&rate) => Ok(rate),
        Ok(_) | Err(_) => {
            Err("write a rate as `500`, `100..2000` or `100,500,1000`, up to 1,000,000 a second".to_owned())
        }
    };
    let steps: Result<Vec<_>, String> = text
        .split(',')
        .map(|step| match step.split_once("..") {
            Some((from, to)) => Ok((rate(from)?, rate(to)?)),
            None => rate(step).map(|rate| (rate, rate)),
        })
        .collect();
    let steps = steps?;
    if steps.iter().all(|(from, to)| from + to == 0.0) {
        return Err("with a rate of 0 nothing is sent".to_owned());
    }
    Ok(Rates(steps))
}

fn share(text: &str) -> Result<f64, String> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let share = match text.strip_suffix('%') {
        Some(percent) => number(percent).map(|percent| percent / 100.0),
        None => number(text),
    };
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "write a share as `5%` or `0.05`, up to 100%".to_owned())
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("write a field as `Name: value`")?;
    let name = name.trim().parse().map_err(|_| format!("`{name}` is no name of a field"))?;
    // The value may be a credential, and is not repeated.
    let value = value.trim().parse().map_err(|_| "its value has characters that cannot stand in a field".to_owned())?;
    Ok((name, value))
}

fn tls(ca: Option<&Path>) -> anyhow::Result<ClientTls> {
    let roots = match ca {
        Some(file) => authorities(file).map_err(|error| Usage::new(format!("--ca {}: {error}", file.display())))?,
        None => {
            let (warnings, roots) = system_authorities();
            warnings.iter().for_each(say);
            roots.map_err(anyhow::Error::msg)?
        }
    };
    ClientTls::new(roots, None).map_err(anyhow::Error::msg)
}

fn read(path: &Path) -> anyhow::Result<Summary> {
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Summary::from_json(&text).with_context(|| format!("cannot compare with {}", path.display()))
}

fn create(path: &Path) -> anyhow::Result<File> {
    File::create(path).with_context(|| format!("cannot write {}", path.display()))
}

/// Drawn where standard error is a terminal.
fn bar(lasts: Duration) -> ProgressBar {
    let bar = ProgressBar::new(lasts.as_millis() as u64);
    if let Ok(style) = ProgressStyle::with_template("[{elapsed}] {bar:30} {percent:>3} %  {msg}") {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_one_or_a_ramp_or_steps() {
        assert_eq!(rates("500").unwrap().0, [(500.0, 500.0)]);
        assert_eq!(rates("100..2000").unwrap().0, [(100.0, 2000.0)]);
        assert_eq!(rates("100,500..600").unwrap().0, [(100.0, 100.0), (500.0, 600.0)]);
        for wrong in ["", "0", "-5", "ten", "1..", "1,,2", "inf", "NaN", "1e9"] {
            assert!(rates(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn shares_are_parts_or_percent() {
        assert_eq!(share("5%"), Ok(0.05));
        assert_eq!(share("0.25"), Ok(0.25));
        for wrong in ["", "%", "101%", "1.5", "-1", "five", "NaN"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }
}
