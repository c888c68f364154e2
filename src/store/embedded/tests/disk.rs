//! A simulated disk: what was written and what was synced are two things, and
//! it fails when told to.

use std::io::{Error, ErrorKind, Result};
use std::sync::{Arc, Mutex, MutexGuard};

use redb::StorageBackend;

use crate::store::conformance::Dice;

/// The unit a real disk writes whole.
const SECTOR: usize = 512;

/// A handle to the disk; clones are the same disk.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
pub(super) struct State {
    /// What a read returns: the page cache.
    live: Vec<u8>,
    /// What a power cut leaves for certain.
    durable: Vec<u8>,
    /// What was written since the last sync, in order.
    pending: Vec<Pending>,
    /// The power fails after so many more writes and syncs.
    pub(super) fuse: Option<u64>,
    /// Syncs are reported done and are not: the control.
    pub(super) lies: bool,
    /// Writes fail: no room.
    pub(super) full: bool,
    /// Syncs fail.
    pub(super) sync_fails: bool,
}

#[derive(Debug, Clone)]
enum Pending {
    Write(u64, Vec<u8>),
    Length(u64),
}

/// What of the writes that were not synced reaches the disk when the power fails.
#[derive(Debug, Clone, Copy)]
pub(super) enum Survivors {
    Nothing,
    Everything,
    /// The first ones.
    Prefix,
    /// All but one.
    AllButOne,
    /// Only what was written at the file's start, where redb has its header.
    HeaderOnly,
    /// Each sector by chance, in percent.
    Sectors(u64),
}

impl Survivors {
    pub(super) const ALL: [Survivors; 7] = [
        Survivors::Sectors(50),
        Survivors::Sectors(97),
        Survivors::AllButOne,
        Survivors::Prefix,
        Survivors::Everything,
        Survivors::Nothing,
        Survivors::HeaderOnly,
    ];
}

impl Disk {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// The disk as it is found after a power cut now.
    pub(super) fn after_power_cut(&self, survivors: Survivors, dice: &mut Dice) -> Disk {
        let state = self.state();
        let mut found = state.durable.clone();
        let chosen = dice.roll((state.pending.len() as u64).max(1)) as usize;
        for (at, pending) in state.pending.iter().enumerate() {
            let (kept, percent) = match survivors {
                Survivors::Nothing => (false, 0),
                Survivors::Everything => (true, 100),
                Survivors::Prefix => (at < chosen, 100),
                Survivors::AllButOne => (at != chosen, 100),
                Survivors::HeaderOnly => (matches!(pending, Pending::Write(0, _)), 100),
                Survivors::Sectors(percent) => (true, percent),
            };
            match pending {
                _ if !kept => {}
                Pending::Length(length) if dice.roll(100) < percent => {
                    let length = found.len().max(*length as usize);
                    found.resize(length, 0);
                }
                Pending::Length(_) => {}
                Pending::Write(offset, data) => {
                    for (sector, bytes) in data.chunks(SECTOR).enumerate() {
                        if dice.roll(100) < percent {
                            put(&mut found, *offset as usize + sector * SECTOR, bytes);
                        }
                    }
                }
            }
        }
        Disk(Arc::new(Mutex::new(State { live: found.clone(), durable: found, ..State::default() })))
    }

    /// A copy on which the byte at `at` is another.
    pub(super) fn with_byte_flipped(&self, at: usize, by: u8) -> Disk {
        let mut found = self.state().live.clone();
        found[at] ^= by;
        Disk::holding(found)
    }

    pub(super) fn holding(bytes: Vec<u8>) -> Disk {
        Disk(Arc::new(Mutex::new(State { live: bytes.clone(), durable: bytes, ..State::default() })))
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.state().live.clone()
    }
}

impl State {
    fn burn(&mut self) -> Result<()> {
        match &mut self.fuse {
            Some(0) => Err(Error::other("the power is off")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn write(&mut self) -> Result<()> {
        if self.full {
            return Err(ErrorKind::StorageFull.into());
        }
        self.burn()
    }
}

fn put(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    let end = offset + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset..end].copy_from_slice(data);
}

impl StorageBackend for Disk {
    fn len(&self) -> Result<u64> {
        Ok(self.state().live.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let state = self.state();
        let offset = offset as usize;
        let found = state.live.get(offset..offset + out.len()).ok_or(ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn set_len(&self, length: u64) -> Result<()> {
        let mut state = self.state();
        state.write()?;
        state.live.resize(length as usize, 0);
        state.pending.push(Pending::Length(length));
        Ok(())
    }

    fn sync_data(&self) -> Result<()> {
        let mut state = self.state();
        state.burn()?;
        if state.sync_fails {
            return Err(Error::other("input/output error"));
        }
        if state.lies {
            return Ok(());
        }
        let pending = std::mem::take(&mut state.pending);
        for pending in pending {
            match pending {
                Pending::Write(offset, data) => put(&mut state.durable, offset as usize, &data),
                Pending::Length(length) => state.durable.resize(length as usize, 0),
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut state = self.state();
        state.write()?;
        put(&mut state.live, offset as usize, data);
        state.pending.push(Pending::Write(offset, data.to_vec()));
        Ok(())
    }
}
