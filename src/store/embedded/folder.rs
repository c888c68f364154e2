//! The folder of an embedded store: it belongs to one process at a time.
//!
//! The lock is the kernel's, on a file that stays: it ends with the process,
//! however that ends, so there is no stale lock to remove by hand.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::OpenError;

/// The lock; its text names the process that holds it.
const LOCK_FILE: &str = "onceward.lock";
/// The records.
const RECORDS_FILE: &str = "records.redb";
/// How often a taken lock is tried again while waiting for it.
const TRY_AGAIN: Duration = Duration::from_millis(50);

/// A folder that this process holds until this is dropped.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Takes the folder, making it if need be. One that is held by another
    /// process is refused, at once or after `takeover`.
    pub(super) fn take(path: &Path, takeover: Option<Duration>) -> Result<Self, OpenError> {
        let unusable = |source| OpenError::Unusable { path: path.to_owned(), source };
        make(path)?;
        let mut lock = private_file(&path.join(LOCK_FILE)).map_err(unusable)?;
        let begun = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(source)) => return Err(unusable(source)),
                Err(TryLockError::WouldBlock) => {}
            }
            let left = takeover.unwrap_or_default().saturating_sub(begun.elapsed());
            if left.is_zero() {
                let holder = holder(&mut lock);
                return Err(match takeover {
                    None => OpenError::InUse { path: path.to_owned(), holder },
                    Some(waited) => OpenError::StillInUse { path: path.to_owned(), holder, waited },
                });
            }
            std::thread::park_timeout(left.min(TRY_AGAIN));
        }
        name_holder(&mut lock).map_err(unusable)?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// Opens the file of the records, making it if need be.
    pub(super) fn records(&self) -> io::Result<File> {
        let file = private_file(&self.path.join(RECORDS_FILE))?;
        // A new file is only there after a power cut if its folder was synced.
        File::open(&self.path)?.sync_all()?;
        Ok(file)
    }
}

/// Responses and keys are nobody else's business on this machine.
fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

fn make(path: &Path) -> Result<(), OpenError> {
    let unusable = |source| OpenError::Unusable { path: path.to_owned(), source };
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => return Err(OpenError::NotAFolder { path: path.to_owned() }),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) if error.kind() == ErrorKind::NotADirectory => {
            return Err(OpenError::NotAFolder { path: path.to_owned() });
        }
        Err(error) => return Err(unusable(error)),
    }
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(unusable)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent).and_then(|folder| folder.sync_all()).map_err(unusable)
}

fn name_holder(lock: &mut File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    writeln!(lock, "process {}", std::process::id())
}

/// Who holds the lock, as far as its file tells.
fn holder(lock: &mut File) -> String {
    let mut text = String::new();
    match lock.take(64).read_to_string(&mut text) {
        Ok(_) if !text.trim().is_empty() => text.trim().to_owned(),
        Ok(_) | Err(_) => "another process".to_owned(),
    }
}
