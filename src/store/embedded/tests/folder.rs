//! Promise: a folder belongs to one process at a time, whoever cannot have it
//! is told why, and one that lost its records is not taken for a new one.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::store::Health;
use crate::store::conformance::SOON;
use crate::store::embedded::Options;
use crate::store::embedded::folder::Folder;

fn open_folder(path: &Path, takeover: Option<Duration>, run: u8) -> Result<EmbeddedStore, OpenError> {
    let options = Options { path: path.to_owned(), sync: Sync::Group, takeover, clock: clock(), boot: boot(run) };
    EmbeddedStore::open(options)
}

#[tokio::test]
async fn a_folder_in_use_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let first = open_folder(folder.path(), SOON, 1).unwrap();
    let error = open_folder(folder.path(), None, 2).unwrap_err();
    assert!(matches!(&error, OpenError::InUse { holder, .. } if *holder == format!("process {}", std::process::id())));
    assert!(error.to_string().contains("--takeover"), "{error}");
    let error = open_folder(folder.path(), Some(Duration::from_millis(20)), 2).unwrap_err();
    assert!(matches!(error, OpenError::StillInUse { .. }), "{error}");
    complete(&first, "still served").await;
}

#[tokio::test]
async fn a_deleted_lock_file_does_not_open_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let first = open_folder(folder.path(), SOON, 1).unwrap();
    std::fs::remove_file(folder.path().join("onceward.lock")).unwrap();
    let error = open_folder(folder.path(), None, 2).unwrap_err();
    assert!(matches!(&error, OpenError::Unusable { source, .. } if source.to_string().contains("in use")), "{error:?}");
    complete(&first, "still served").await;
}

#[tokio::test]
async fn records_that_are_taken_away_are_missed() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_folder(folder.path(), SOON, 1).unwrap();
    complete(&store, "k").await;
    std::fs::remove_file(folder.path().join("records.redb")).unwrap();
    let mut health = store.health();
    health.wait_for(|health| matches!(health, Health::Failed(why) if why.contains("removed"))).await.unwrap();
    assert!(matches!(store.claim(ask("new", 3)).await, Err(StoreError::Unavailable(_))));
    assert!(store.may_hold(ask("k", 4).id()), "what it held is still known");
    assert!(!store.may_hold(ask("never seen", 5).id()));
}

#[tokio::test]
async fn a_takeover_waits_for_the_end_of_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let first = open_folder(folder.path(), SOON, 1).unwrap();
    complete(&first, "k").await;
    grant(&first, ask("running", 2)).await;
    let path = folder.path().to_owned();
    let second = tokio::task::spawn_blocking(move || open_folder(&path, Some(Duration::from_secs(60)), 2));
    first.close().await.unwrap();
    drop(first);
    let second = second.await.unwrap().unwrap();
    assert!(is_replayed(&second, "k").await);
    assert!(matches!(second.claim(ask("running", 3)).await.unwrap(), Admission::Unknown(_)));
}

#[tokio::test]
async fn folders_are_made_and_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep").join("data");
    complete(&open_folder(&path, SOON, 1).unwrap(), "k").await;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o077;
    assert_eq!(mode(&path), 0);
    assert_eq!(mode(&path.join("records.redb")), 0);
    assert_eq!(mode(&path.join("records.made")), 0);
    assert!(is_replayed(&open_folder(&path, SOON, 2).unwrap(), "k").await);
}

#[test]
fn what_is_no_usable_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    assert!(matches!(open_folder(&file, None, 1), Err(OpenError::NotAFolder { .. })));
    assert!(matches!(open_folder(&file.join("below"), None, 1), Err(OpenError::NotAFolder { .. })));
    let error = open_folder(Path::new("/proc/onceward"), None, 1).unwrap_err();
    assert!(matches!(&error, OpenError::Unusable { .. }), "{error}");
    assert!(error.to_string().contains("/proc/onceward"), "{error}");
}

#[test]
fn what_the_system_said_is_told_once() {
    let path = std::path::PathBuf::from("/data");
    let source = || std::io::Error::other("the system's own words");
    for error in [OpenError::Unusable { path, source: source() }, OpenError::NoThread { source: source() }] {
        let told = format!("{:#}", anyhow::Error::from(error));
        assert_eq!(told.matches("the system's own words").count(), 1, "{told}");
    }
}

/// A folder that held the record of `k`, closed.
async fn used(path: &Path) {
    let store = open_folder(path, SOON, 1).unwrap();
    complete(&store, "k").await;
    store.close().await.unwrap();
}

#[tokio::test]
async fn lost_records_are_not_read_as_a_fresh_start() {
    for (found, lose) in [
        ("gone", (|records| std::fs::remove_file(records)) as fn(&Path) -> std::io::Result<()>),
        ("empty", |records| std::fs::write(records, "")),
    ] {
        let folder = tempfile::tempdir().unwrap();
        used(folder.path()).await;
        let records = folder.path().join("records.redb");
        let kept = std::fs::read(&records).unwrap();
        lose(&records).unwrap();
        for run in 2..4 {
            let error = open_folder(folder.path(), SOON, run).unwrap_err();
            assert!(matches!(&error, OpenError::Lost { .. }), "{error}");
            let told = error.to_string();
            for words in [found, "Put the file back", "executed again", "remove the whole folder"] {
                assert!(told.contains(words), "{words}: {told}");
            }
        }
        std::fs::write(&records, kept).unwrap();
        assert!(is_replayed(&open_folder(folder.path(), SOON, 4).unwrap(), "k").await);
        std::fs::remove_dir_all(folder.path()).unwrap();
        grant(&open_folder(folder.path(), SOON, 5).unwrap(), ask("k", 3)).await;
    }
}

#[tokio::test]
async fn the_folder_of_an_earlier_release_is_opened_and_remembered() {
    let folder = tempfile::tempdir().unwrap();
    used(folder.path()).await;
    std::fs::remove_file(folder.path().join("records.made")).unwrap();
    let store = open_folder(folder.path(), SOON, 2).unwrap();
    assert!(is_replayed(&store, "k").await);
    drop(store);
    std::fs::write(folder.path().join("records.redb"), "").unwrap();
    assert!(matches!(open_folder(folder.path(), SOON, 3), Err(OpenError::Lost { .. })));
}

/// Whatever a first start leaves behind that died before anything was promised.
#[tokio::test]
async fn a_first_start_that_died_is_begun_again() {
    let leftovers: [&[(&str, &[u8])]; 4] = [
        &[("onceward.lock", b"")],
        &[("onceward.lock", b"process 1\n"), ("records.redb", b"")],
        &[("onceward.lock", b"process 1\n"), ("records.redb.new", b"")],
        &[("onceward.lock", b"process 1\n"), ("records.redb.new", &[0; 10_000])],
    ];
    for files in leftovers {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            std::fs::write(folder.path().join(name), content).unwrap();
        }
        used(folder.path()).await;
        assert!(!folder.path().join("records.redb.new").exists());
        assert!(is_replayed(&open_folder(folder.path(), SOON, 2).unwrap(), "k").await);
    }
}

#[test]
fn records_that_vanish_under_a_running_store_are_not_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("records.redb");
    drop(open_folder(folder.path(), SOON, 1).unwrap());
    let held = Folder::take(folder.path(), None).unwrap();
    assert!(held.records().is_ok());
    std::fs::write(&records, "").unwrap();
    assert!(held.records().is_err());
    std::fs::remove_file(&records).unwrap();
    assert!(held.records().is_err());
    assert!(!records.exists());
}
