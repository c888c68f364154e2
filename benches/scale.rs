//! The embedded store as it fills: what a first request costs over ten thousand
//! records and over ten million, how long a start takes, what it keeps in
//! memory, and whether expiry holds anybody up.
//!
//! ```sh
//! cargo bench --bench scale                              # up to 100,000 records
//! cargo bench --bench scale -- 10000000 --folder /data   # some 12 GB, and half an hour
//! ```
//!
//! Each line is a process of its own: what an earlier one left behind in memory is
//! in no number. Records are written with `sync: never` and measured with `group`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what is not measured rightly has to be loud"
)]

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onceward::clock::ManualClock;
use onceward::model::key::{Identity, Part};
use onceward::model::record::BootId;
use onceward::model::time::Timestamp;
use onceward::plan::Sync;
use onceward::store::Store;
use onceward::store::embedded::{EmbeddedStore, Options};
use support::claims::{Claims, START, answer, run};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// Where the cost of a request is looked at, in records.
const STAGES: [u64; 4] = [10_000, 100_000, 1_000_000, 10_000_000];
/// Requests at once while it is measured, and while it is filled.
const TASKS: u64 = 64;
const FILLERS: u64 = 256;
/// How long each is measured.
const MEASURED: Duration = Duration::from_secs(8);
/// Longer than an answer is kept by default.
const LATER: Duration = Duration::from_secs(25 * 60 * 60);

fn main() -> ExitCode {
    // Cargo adds `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["fill", folder, count] => fill(Path::new(folder), number(count)),
        ["measure", folder, hours, end] => measure(Path::new(folder), number(hours), *end == "close"),
        [] => drive(100_000, Path::new(env!("CARGO_TARGET_TMPDIR"))),
        [records] => drive(number(records), Path::new(env!("CARGO_TARGET_TMPDIR"))),
        [records, "--folder", folder] => drive(number(records), Path::new(folder)),
        _ => {
            eprintln!("usage: cargo bench --bench scale -- [RECORDS] [--folder DIR]");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("`{text}` is no number of records"))
}

/// Runs every line, each in a process of its own.
fn drive(records: u64, folder: &Path) {
    let folder = tempfile::TempDir::new_in(folder).expect("a folder");
    let path = folder.path().join("records");
    let path = path.to_str().expect("a folder with a name in UTF-8");
    let mut at = 0;
    println!(
        "{:>10}  {:<22} {:>8} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8}",
        "records", "after", "start s", "start MB", "req/s", "p50 ms", "p99 ms", "CPU us", "end MB"
    );
    for stage in STAGES.into_iter().filter(|stage| *stage < records).chain([records]) {
        child(&["fill", path, &(stage - at).to_string()], "");
        at = stage;
        child(&["measure", path, "0", "exit"], &format!("{at:>10}  {:<22}", "a stop"));
        child(&["measure", path, "0", "close"], &format!("{at:>10}  {:<22}", "a kill"));
    }
    let hours = (LATER.as_secs() / 3600).to_string();
    child(&["measure", path, &hours, "close"], &format!("{at:>10}  {:<22}", "a day, all expire"));
    let size = std::fs::read_dir(path)
        .expect("its folder")
        .map(|file| file.expect("a file").metadata().expect("its size").len());
    println!("{:.2} GB on disk", size.sum::<u64>() as f64 / 1e9);
}

fn child(arguments: &[&str], line: &str) {
    use std::io::Write as _;
    print!("{line}");
    std::io::stdout().flush().expect("a terminal");
    let program = std::env::current_exe().expect("this program");
    let status = Command::new(program).args(arguments).status().expect("it runs");
    assert!(status.success(), "a line failed");
}

fn open(folder: &Path, sync: Sync, clock: &Arc<ManualClock>) -> Arc<dyn Store> {
    let boot = BootId::from_bytes(std::process::id().to_be_bytes().repeat(2).try_into().expect("eight bytes"));
    let options = Options { path: PathBuf::from(folder), sync, takeover: None, clock: Arc::clone(clock) as _, boot };
    Arc::new(EmbeddedStore::open(options).expect("a store"))
}

/// Runs first requests from `tasks` at once until there are `count` of them, or
/// until that moment; how long each took, in microseconds. Their keys are this
/// process's own.
async fn load(store: &Arc<dyn Store>, tasks: u64, count: u64, until: Option<Instant>) -> Vec<u32> {
    let (claims, begun) = (Arc::new(Claims::new()), Arc::new(AtomicU64::new(0)));
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        let (store, claims, begun) = (Arc::clone(store), Arc::clone(&claims), Arc::clone(&begun));
        running.spawn(async move {
            let mut took = Vec::new();
            while begun.fetch_add(1, Ordering::Relaxed) < count && until.is_none_or(|until| Instant::now() < until) {
                let mut offer = claims.next();
                let key = format!("{}-{}", std::process::id(), offer.attempt_id);
                offer.identity = Identity::of(&offer.route, &[], &[Part::Text(key.into())]);
                let begun = Instant::now();
                run(store.as_ref(), offer, answer(200)).await;
                took.push(u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX));
            }
            took
        });
    }
    running.join_all().await.concat()
}

fn fill(folder: &Path, count: u64) {
    let store = open(folder, Sync::Never, &Arc::new(ManualClock::starting_at(START)));
    Runtime::new().expect("a runtime").block_on(async {
        load(&store, FILLERS, count, None).await;
        store.close().await.expect("it closes");
    });
}

/// Opens the store as it is so many hours later, and measures. Where it is not
/// closed, whoever opens it next takes this process for one that was killed.
fn measure(folder: &Path, hours: u64, close: bool) {
    let begun = Instant::now();
    let now = Timestamp::from_millis(START.as_millis() + hours * 3_600_000);
    let store = open(folder, Sync::Group, &Arc::new(ManualClock::starting_at(now)));
    let runtime = Runtime::new().expect("a runtime");
    assert_eq!(runtime.block_on(load(&store, 1, 1, None)).len(), 1, "the first answer");
    let started = begun.elapsed();
    let (at_start, cpu) = (resident(), cpu());
    let begun = Instant::now();
    let mut took = runtime.block_on(load(&store, TASKS, u64::MAX, Some(begun + MEASURED)));
    let (lasted, cpu) = (begun.elapsed(), self::cpu() - cpu);
    took.sort_unstable();
    let at = |share: f64| f64::from(took[((took.len() - 1) as f64 * share) as usize]) / 1e3;
    println!(
        " {:>8.2} {:>9.0} {:>9.0} {:>9.2} {:>9.2} {:>8.1} {:>8.0}",
        started.as_secs_f64(),
        at_start,
        took.len() as f64 / lasted.as_secs_f64(),
        at(0.5),
        at(0.99),
        cpu.as_secs_f64() * 1e6 / took.len() as f64,
        resident(),
    );
    if close {
        runtime.block_on(store.close()).expect("it closes");
    } else {
        std::process::exit(0);
    }
}

/// Resident memory of this process, in MB.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("resident memory");
    line.trim().trim_end_matches(" kB").parse::<f64>().expect("kilobytes") / 1e3
}

/// User and system time of this process.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().map(|at| fields[*at].parse::<u64>().expect("ticks")).sum();
    // A tick is 10 ms wherever Linux runs.
    Duration::from_millis(ticks * 10)
}
