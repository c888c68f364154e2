//! Promise: a folder belongs to one process at a time, and whoever cannot have
//! it is told why.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::store::embedded::Options;

fn open_folder(path: &Path, takeover: Option<Duration>, run: u8) -> Result<EmbeddedStore, OpenError> {
    let options = Options { path: path.to_owned(), sync: Sync::Group, takeover, clock: clock(), boot: boot(run) };
    EmbeddedStore::open(options)
}

#[tokio::test]
async fn a_folder_in_use_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let first = open_folder(folder.path(), None, 1).unwrap();
    let error = open_folder(folder.path(), None, 2).unwrap_err();
    assert!(matches!(&error, OpenError::InUse { holder, .. } if *holder == format!("process {}", std::process::id())));
    assert!(error.to_string().contains("--takeover"), "{error}");
    let error = open_folder(folder.path(), Some(Duration::from_millis(20)), 2).unwrap_err();
    assert!(matches!(error, OpenError::StillInUse { .. }), "{error}");
    complete(&first, "still served").await;
}

#[tokio::test]
async fn a_takeover_waits_for_the_end_of_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let first = open_folder(folder.path(), None, 1).unwrap();
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
    complete(&open_folder(&path, None, 1).unwrap(), "k").await;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o077;
    assert_eq!(mode(&path), 0);
    assert_eq!(mode(&path.join("records.redb")), 0);
    assert!(is_replayed(&open_folder(&path, None, 2).unwrap(), "k").await);
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
