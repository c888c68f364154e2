//! The folder of an embedded store: it belongs to one process at a time.
//!
//! The lock is the kernel's, on a file that stays: it ends with the process,
//! however that ends, so there is no stale lock to remove by hand.
//!
//! The folder remembers that records were made in it, so that their loss is
//! never read as a fresh start: every key would be new again. What a first
//! start makes gets its name when it is whole, and is remembered after that:
//!
//! ```text
//! records.redb.new ──sync, rename──▶ records.redb ──sync──▶ records.made
//! ```
//!
//! A start that dies anywhere on the way leaves a folder that can be opened.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::OpenError;

/// The lock; its text names the process that holds it.
const LOCK_FILE: &str = "onceward.lock";
/// The records.
const RECORDS_FILE: &str = "records.redb";
/// The records while a first start makes them.
const NEW_RECORDS_FILE: &str = "records.redb.new";
/// Stands where records were made once.
const MADE_FILE: &str = "records.made";
/// What it tells whoever looks into it.
const MADE_TEXT: &str = "records.redb was made in this folder. Onceward does not start without it.\n";
/// How often a taken lock is tried again while waiting for it.
const TRY_AGAIN: Duration = Duration::from_millis(50);

/// A folder that this process holds until this is dropped.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    _lock: File,
    /// Whether there are no records yet, and never were.
    is_new: AtomicBool,
    /// Of the file that was opened last.
    inode: AtomicU64,
}

impl Folder {
    /// Takes the folder, making it if need be. One that is held by another
    /// process is refused, at once or after `takeover`; one that has lost its
    /// records is refused always.
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
        let records = length(&path.join(RECORDS_FILE)).map_err(unusable)?;
        let made = path.join(MADE_FILE).try_exists().map_err(unusable)?;
        let is_new = AtomicBool::new(match (made, records) {
            (_, Some(1..)) => false,
            (false, None | Some(0)) => true,
            (true, None) => return Err(OpenError::Lost { path: path.to_owned(), found: "gone" }),
            (true, Some(0)) => return Err(OpenError::Lost { path: path.to_owned(), found: "empty" }),
        });
        Ok(Self { path: path.to_owned(), _lock: lock, is_new, inode: AtomicU64::new(0) })
    }

    /// Opens the file of the records. It is made only where there never was
    /// one: this is called again after a failure, when it has to be there.
    pub(super) fn records(&self) -> io::Result<File> {
        let file = if self.is_new.load(Ordering::SeqCst) {
            let file = private_file(&self.path.join(NEW_RECORDS_FILE))?;
            file.set_len(0)?;
            file
        } else {
            OpenOptions::new().read(true).write(true).open(self.path.join(RECORDS_FILE))?
        };
        // The folder's lock can be deleted under us; this one cannot without
        // the records.
        file.try_lock().map_err(|_| io::Error::other(format!("{RECORDS_FILE} is in use by another process")))?;
        let found = file.metadata()?;
        if found.len() == 0 && !self.is_new.load(Ordering::SeqCst) {
            return Err(io::Error::other(format!("{RECORDS_FILE} has become empty")));
        }
        self.inode.store(found.ino(), Ordering::SeqCst);
        Ok(file)
    }

    /// Whether the opened file still is the one that has its name: another
    /// process would not find what is written to it any more.
    pub(super) fn is_there(&self) -> bool {
        let found = std::fs::metadata(self.path.join(RECORDS_FILE));
        found.is_ok_and(|found| found.ino() == self.inode.load(Ordering::SeqCst))
    }

    /// Remembers, durably, that there are records from now on. To be called
    /// when they were opened, before anything is promised.
    pub(super) fn remember(&self) -> io::Result<()> {
        let folder = File::open(&self.path)?;
        if self.is_new.load(Ordering::SeqCst) {
            let (new, records) = (self.path.join(NEW_RECORDS_FILE), self.path.join(RECORDS_FILE));
            // Whatever `sync` says about what is written later.
            File::open(&new)?.sync_all()?;
            std::fs::rename(new, records)?;
            self.is_new.store(false, Ordering::SeqCst);
        }
        // A new name is only there after a power cut if its folder was synced.
        folder.sync_all()?;
        let made = self.path.join(MADE_FILE);
        if made.try_exists()? {
            return Ok(());
        }
        let mut made = private_file(&made)?;
        made.write_all(MADE_TEXT.as_bytes())?;
        made.sync_all()?;
        folder.sync_all()
    }
}

/// Responses and keys are nobody else's business on this machine.
fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// How long a file is; `None` if it is not there.
fn length(path: &Path) -> io::Result<Option<u64>> {
    match std::fs::metadata(path) {
        Ok(found) => Ok(Some(found.len())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
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
