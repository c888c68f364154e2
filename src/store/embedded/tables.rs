//! The tables on disk, and everything that reads or writes them.
//!
//! ```text
//! META      "format"            → version of this layout
//! ROWS      place               → the record, as model::codec writes it, with its checksum
//! INDEX     place               → id (16)  open? (1)  crc32 (4)
//! DUE       (due ms, place)     → id (16)  vanishes then? (1)  crc32 (4)
//! LINEAGES  lineage             → route name, until when its records may live (ms)
//! REPEATS   id                  → replays, mismatches, when each was last (ms; 0: never)
//! ```
//!
//! Rows are a log: every new state of a record gets the next place, and the
//! place it had is freed in the same commit. So a commit touches the newest
//! pages, however many records there are, and old pages empty as a whole.
//!
//! Each table but ROWS is small, so a start reads INDEX and LINEAGES and the
//! open rows, not the records. An index that lost an entry would make a used
//! key new, therefore its entries carry checksums, cover their keys, and are
//! counted against the rows.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use redb::{
    Builder, Database, ReadOnlyTable, ReadableDatabase, ReadableTable, ReadableTableMetadata, Table, TableDefinition,
};

use super::backend::Watched;
use super::index::Index;
use crate::model::codec;
use crate::model::key::{Lineage, RecordId};
use crate::model::record::Record;
use crate::model::time::Timestamp;
use crate::store::census::Census;
use crate::store::list::Repeats;

type Mark = [u8; 21];

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const PROBE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("probe");
/// How much a probe writes: more than the free pages a full disk leaves behind.
const PROBE_BYTES: usize = 16 << 10;
const ROWS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("rows");
const INDEX: TableDefinition<'_, u64, &Mark> = TableDefinition::new("index");
const DUE: TableDefinition<'_, (u64, u64), &Mark> = TableDefinition::new("due");
const LINEAGES: TableDefinition<'_, &[u8; 8], (&str, u64)> = TableDefinition::new("lineages");

const REPEATS: TableDefinition<'_, &[u8; 16], (u64, u64, u64, u64)> = TableDefinition::new("repeats");
/// How many repeats are looked at for one that is written, whether their record
/// is still there.
const REPEATS_TIDIED: usize = 2;

const FORMAT_KEY: &str = "format";
/// The version of the layout above. Any change of it is a new number.
const FORMAT: u64 = 1;

/// Pages that redb keeps in memory. Claims of new keys and the ends of recent
/// ones need the newest pages only; replays past the local cache profit.
const CACHE_BYTES: usize = 64 << 20;

/// How many bytes of rows one sweep reads at most.
const SWEEP_BYTES: usize = 16 << 20;

/// The open database.
pub(super) struct Tables {
    database: Database,
    next_place: u64,
    lineages: HashMap<Lineage, u64>,
    /// Up to where repeats were tidied.
    tidied: [u8; 16],
}

/// All that a batch writes.
#[derive(Debug, Default)]
pub(super) struct Writes {
    pub(super) changes: Vec<Change>,
    /// What is added to repeats; `None`: they begin anew.
    pub(super) repeats: Vec<(RecordId, Option<Repeats>)>,
}

impl Writes {
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.repeats.is_empty()
    }
}

/// What a start finds.
pub(super) struct Loaded {
    pub(super) tables: Tables,
    pub(super) index: Index,
    pub(super) census: Census,
    /// When time next changes a row.
    pub(super) first_due: Option<Timestamp>,
}

/// Why the tables cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    /// The engine, or the disk under it.
    #[error("{0}")]
    Engine(Box<redb::Error>),
    /// The tables contradict themselves.
    #[error("{0}")]
    Damaged(String),
    /// Written by another release.
    #[error("layout {0}")]
    UnknownFormat(u64),
    /// A database, but not this store's.
    #[error("it holds tables of something else")]
    Foreign,
}

impl<E: Into<redb::Error>> From<E> for LoadError {
    fn from(error: E) -> Self {
        LoadError::Engine(Box::new(error.into()))
    }
}

/// One record to write.
#[derive(Debug)]
pub(super) struct Change {
    /// The row it replaces.
    pub(super) before: Option<Before>,
    /// The record.
    pub(super) after: Arc<Record>,
}

/// What must be known of a row to replace it.
#[derive(Debug)]
pub(super) struct Before {
    /// Where it is.
    pub(super) place: u64,
    /// When time would have changed it.
    pub(super) due: Option<Timestamp>,
    /// The row itself, if it stood open.
    pub(super) open: Option<Arc<Record>>,
}

/// What a commit did.
#[derive(Debug)]
pub(super) struct Committed {
    /// Where each change went, in their order.
    pub(super) places: Vec<u64>,
    /// Rows that time has changed.
    pub(super) swept: Vec<Swept>,
    /// When time next changes a row.
    pub(super) first_due: Option<Timestamp>,
}

/// A row that time has changed.
#[derive(Debug)]
pub(super) struct Swept {
    pub(super) id: RecordId,
    pub(super) place: u64,
    /// The row as it was, if it stood open.
    pub(super) open: Option<Arc<Record>>,
    /// What is left of it.
    pub(super) after: Option<Arc<Record>>,
}

/// The rows as the last commit left them.
pub(super) struct Rows(ReadOnlyTable<u64, &'static [u8]>);

/// A row could not be read as the record it must be.
#[derive(Debug)]
pub(super) struct Corrupt;

impl Rows {
    /// The record of `id` at `place`.
    pub(super) fn record(&self, id: RecordId, place: u64) -> Result<Result<Record, Corrupt>, redb::Error> {
        let row = self.0.get(place)?;
        Ok(read_row(id, row.as_ref().map(redb::AccessGuard::value)))
    }

    /// Looks at the rows behind `place`, in their order, until `look` has seen
    /// enough; it is given each row's place and bytes.
    pub(super) fn walk(
        &self,
        behind: Option<u64>,
        mut look: impl FnMut(u64, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), redb::Error> {
        let from = behind.map_or(0, |place| place.saturating_add(1));
        for entry in self.0.range(from..)? {
            let (place, row) = entry?;
            if look(place.value(), row.value()).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// Reads a row that must be there and must be `id`'s.
fn read_row(id: RecordId, row: Option<&[u8]>) -> Result<Record, Corrupt> {
    let record = match row.map(codec::decode) {
        Some(Ok(record)) if record.id() == id => Ok(record),
        Some(Ok(other)) => Err(format!("it is the record {}", other.id())),
        Some(Err(error)) => Err(error.to_string()),
        None => Err("it is missing".to_owned()),
    };
    record.map_err(|why| {
        tracing::error!(record = %id, why, "a stored record is corrupt; its key is refused from now on");
        Corrupt
    })
}

fn mark(salt: &[u8], id: RecordId, flag: bool) -> Mark {
    let mut mark = [0; 21];
    let (body, checksum) = mark.split_at_mut(17);
    let (name, last) = body.split_at_mut(16);
    name.copy_from_slice(id.as_bytes());
    last.fill(u8::from(flag));
    checksum.copy_from_slice(&mark_checksum(salt, body));
    mark
}

fn read_mark(salt: &[u8], mark: &Mark) -> Option<(RecordId, bool)> {
    let (body, checksum) = mark.split_at(17);
    let (name, flag) = body.split_first_chunk::<16>()?;
    (mark_checksum(salt, body) == checksum).then(|| (RecordId::from_bytes(*name), flag == [1]))
}

fn mark_checksum(salt: &[u8], body: &[u8]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(salt);
    hasher.update(body);
    hasher.finalize().to_be_bytes()
}

fn write_tally(tally: Repeats) -> (u64, u64, u64, u64) {
    let millis = |time: Option<Timestamp>| time.map_or(0, Timestamp::as_millis);
    (tally.replays, tally.mismatches, millis(tally.replayed_at), millis(tally.mismatched_at))
}

fn read_tally((replays, mismatches, replayed_at, mismatched_at): (u64, u64, u64, u64)) -> Repeats {
    let time = |millis: u64| (millis > 0).then(|| Timestamp::from_millis(millis));
    Repeats { replays, mismatches, replayed_at: time(replayed_at), mismatched_at: time(mismatched_at) }
}

fn due_salt(due: u64, place: u64) -> [u8; 16] {
    ((u128::from(due) << 64) | u128::from(place)).to_be_bytes()
}

/// Whether nothing is left of the record when its time comes; then its row
/// need not be read to be removed.
fn vanishes_when_due(record: &Record) -> bool {
    !record.state.is_open() && record.state.due() == record.state.lives_until()
}

impl Tables {
    /// Opens the database, making it if the storage is empty. With
    /// `check_everything` each page is verified first; redb does that by itself
    /// where the last process did not close it.
    pub(super) fn load(backend: Watched, check_everything: bool, now: Timestamp) -> Result<Loaded, LoadError> {
        let mut builder = Builder::new();
        builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(check_everything);
        builder.set_repair_callback(|session| {
            tracing::info!(done = session.progress(), "checking the embedded store page by page");
        });
        let database = builder.create_with_backend(backend)?;
        prepare(&database)?;
        let mut loaded = Loaded {
            tables: Tables { database, next_place: 0, lineages: HashMap::new(), tidied: [0; 16] },
            index: Index::default(),
            census: Census::default(),
            first_due: None,
        };
        loaded.read_index()?;
        loaded.read_lineages(now)?;
        Ok(loaded)
    }

    /// The rows as they stand now.
    pub(super) fn rows(&self) -> Result<Rows, redb::Error> {
        Ok(Rows(self.database.begin_read()?.open_table(ROWS)?))
    }

    /// Writes all changes, and what time has done to `sweep` rows at most, as
    /// one durable step. After an error none of it may be believed either way,
    /// and these tables are of no more use.
    pub(super) fn commit(
        &mut self,
        Writes { changes, repeats }: &Writes,
        is_there: impl Fn(RecordId) -> bool,
        sweep: usize,
        now: Timestamp,
    ) -> Result<Committed, redb::Error> {
        let transaction = self.database.begin_write()?;
        let mut places = Vec::with_capacity(changes.len());
        let committed = {
            let mut pen = Pen {
                rows: transaction.open_table(ROWS)?,
                index: transaction.open_table(INDEX)?,
                due: transaction.open_table(DUE)?,
            };
            for change in changes {
                if let Some(before) = &change.before {
                    pen.erase(before.place, before.due)?;
                }
                pen.write(self.next_place, &change.after)?;
                places.push(self.next_place);
                self.next_place += 1;
            }
            let swept = pen.sweep(sweep, now)?;
            let first_due = pen.due.first()?.map(|(key, _)| Timestamp::from_millis(key.value().0));
            Committed { places, swept, first_due }
        };
        let grown = self.grown_lineages(changes);
        if !grown.is_empty() {
            let mut table = transaction.open_table(LINEAGES)?;
            for (lineage, (route, until)) in grown {
                table.insert(lineage.as_bytes(), (&*route, until))?;
                self.lineages.insert(lineage, until);
            }
        }
        if !repeats.is_empty() {
            Self::add_up(&mut self.tidied, &transaction, repeats, is_there)?;
        }
        transaction.commit()?;
        Ok(committed)
    }

    fn grown_lineages(&self, changes: &[Change]) -> HashMap<Lineage, (Arc<str>, u64)> {
        let mut grown: HashMap<Lineage, (Arc<str>, u64)> = HashMap::new();
        for Change { after, .. } in changes {
            let Some(until) = after.state.lives_until().map(Timestamp::as_millis) else { continue };
            let known = grown.get(&after.lineage).map(|(_, until)| until).or_else(|| self.lineages.get(&after.lineage));
            if known.is_none_or(|&known| known < until) {
                grown.insert(after.lineage, (Arc::clone(&after.route), until));
            }
        }
        grown
    }

    /// How often a record was asked for again.
    pub(super) fn repeats(&self, id: RecordId) -> Result<Repeats, redb::Error> {
        let transaction = self.database.begin_read()?;
        let table = match transaction.open_table(REPEATS) {
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Repeats::default()),
            table => table?,
        };
        Ok(table.get(id.as_bytes())?.map(|found| read_tally(found.value())).unwrap_or_default())
    }

    /// Adds repeats up as one step, and clears some away whose record is gone:
    /// it does not cost the sweep of records a look.
    fn add_up(
        tidied: &mut [u8; 16],
        transaction: &redb::WriteTransaction,
        repeats: &[(RecordId, Option<Repeats>)],
        is_there: impl Fn(RecordId) -> bool,
    ) -> Result<(), redb::Error> {
        let mut table = transaction.open_table(REPEATS)?;
        for (id, tally) in repeats {
            let Some(tally) = tally else {
                table.remove(id.as_bytes())?;
                continue;
            };
            let known = table.get(id.as_bytes())?.map(|found| read_tally(found.value())).unwrap_or_default();
            table.insert(id.as_bytes(), write_tally(known.and(*tally)))?;
        }
        let mut looked_at = Vec::new();
        for entry in table.range::<&[u8; 16]>(&*tidied..)?.take(REPEATS_TIDIED * repeats.len() + 1) {
            looked_at.push(*entry?.0.value());
        }
        *tidied = looked_at.last().copied().filter(|_| looked_at.len() > 1).unwrap_or_default();
        for id in looked_at.into_iter().filter(|id| !is_there(RecordId::from_bytes(*id))) {
            table.remove(&id)?;
        }
        Ok(())
    }

    /// Writes something of size and takes it away again: a disk that is still
    /// full lets a file be opened, and fails the next claim.
    pub(super) fn probe(&self) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        transaction.open_table(PROBE)?.insert(0, [0u8; PROBE_BYTES].as_slice())?;
        transaction.commit()?;
        let transaction = self.database.begin_write()?;
        transaction.delete_table(PROBE)?;
        transaction.commit()?;
        Ok(())
    }

    /// Closes the file so that the next start need not repair it.
    pub(super) fn close(self) -> Result<(), redb::Error> {
        Ok(self.database.close()?)
    }
}

/// Makes the tables of an empty database; refuses those of something else.
fn prepare(database: &Database) -> Result<(), LoadError> {
    let transaction = database.begin_write()?;
    let empty = transaction.list_tables()?.next().is_none();
    let format = match empty {
        true => None,
        false => {
            let meta = transaction.open_table(META).map_err(|_| LoadError::Foreign)?;
            let format = meta.get(FORMAT_KEY)?.map(|format| format.value());
            Some(format.ok_or(LoadError::Foreign)?)
        }
    };
    match format {
        Some(FORMAT) => {
            transaction.abort()?;
            return Ok(());
        }
        Some(other) => return Err(LoadError::UnknownFormat(other)),
        None => {}
    }
    transaction.open_table(META)?.insert(FORMAT_KEY, FORMAT)?;
    transaction.open_table(ROWS)?;
    transaction.open_table(INDEX)?;
    transaction.open_table(DUE)?;
    transaction.open_table(LINEAGES)?;
    transaction.commit()?;
    Ok(())
}

impl Loaded {
    fn read_index(&mut self) -> Result<(), LoadError> {
        let transaction = self.tables.database.begin_read()?;
        let index = transaction.open_table(INDEX)?;
        let rows = Rows(transaction.open_table(ROWS)?);
        for entry in index.iter()? {
            let (place, found) = entry?;
            let place = place.value();
            let Some((id, open)) = read_mark(&place.to_be_bytes(), found.value()) else {
                return Err(LoadError::Damaged(format!("the index entry {place} is damaged")));
            };
            if self.index.put(id, place).is_some() {
                return Err(LoadError::Damaged(format!("the record {id} stands twice in the index")));
            }
            self.tables.next_place = place.saturating_add(1);
            // An unreadable row keeps its place: its key stays refused.
            if open && let Ok(record) = rows.record(id, place)? {
                self.census.change(None, Some(&record));
                self.index.mirror(Arc::new(record));
            }
        }
        let counted = [self.index.rows(), index.len()?, rows.0.len()?];
        if counted != [self.index.rows(); 3] {
            let [entries, indexed, rows] = counted;
            let why = format!("the index has {entries} entries where it says {indexed}, for {rows} rows");
            return Err(LoadError::Damaged(why));
        }
        let due = transaction.open_table(DUE)?;
        self.first_due = due.first()?.map(|(key, _)| Timestamp::from_millis(key.value().0));
        Ok(())
    }

    /// Lineages of which nothing can live any more are left out, and written
    /// again when they come back.
    fn read_lineages(&mut self, now: Timestamp) -> Result<(), LoadError> {
        let transaction = self.tables.database.begin_read()?;
        for entry in transaction.open_table(LINEAGES)?.iter()? {
            let (lineage, found) = entry?;
            let (route, until) = found.value();
            let lineage = Lineage::from_bytes(*lineage.value());
            if until > now.as_millis() {
                self.census.remember(lineage, &Arc::from(route), Timestamp::from_millis(until));
                self.tables.lineages.insert(lineage, until);
            }
        }
        Ok(())
    }
}

/// The tables, open for writing.
struct Pen<'a> {
    rows: Table<'a, u64, &'static [u8]>,
    index: Table<'a, u64, &'static Mark>,
    due: Table<'a, (u64, u64), &'static Mark>,
}

impl Pen<'_> {
    fn write(&mut self, place: u64, record: &Record) -> Result<(), redb::Error> {
        let id = record.id();
        self.rows.insert(place, codec::encode(record).as_slice())?;
        self.index.insert(place, &mark(&place.to_be_bytes(), id, record.state.is_open()))?;
        if let Some(due) = record.state.due().map(Timestamp::as_millis) {
            self.due.insert((due, place), &mark(&due_salt(due, place), id, vanishes_when_due(record)))?;
        }
        Ok(())
    }

    fn erase(&mut self, place: u64, due: Option<Timestamp>) -> Result<(), redb::Error> {
        self.rows.remove(place)?;
        self.index.remove(place)?;
        if let Some(due) = due {
            self.due.remove((due.as_millis(), place))?;
        }
        Ok(())
    }

    /// Lets at most `limit` rows become what time has made of them.
    fn sweep(&mut self, limit: usize, now: Timestamp) -> Result<Vec<Swept>, redb::Error> {
        let mut over = Vec::new();
        for entry in self.due.range(..=(now.as_millis(), u64::MAX))?.take(limit) {
            let (key, found) = entry?;
            over.push((key.value(), *found.value()));
        }
        let mut swept = Vec::with_capacity(over.len());
        let mut bytes = 0;
        for ((due, place), found) in over {
            if bytes > SWEEP_BYTES {
                break;
            }
            self.due.remove((due, place))?;
            match read_mark(&due_salt(due, place), &found) {
                Some((id, true)) => {
                    self.erase(place, None)?;
                    swept.push(Swept { id, place, open: None, after: None });
                }
                Some((id, false)) => swept.extend(self.age(id, place, now, &mut bytes)?),
                // Removing a row on the word of a damaged entry could open a
                // key too early. The row stays, and is judged when it is read.
                None => tracing::error!(place, "an entry of the due table is damaged; its row is kept"),
            }
        }
        Ok(swept)
    }

    /// Writes the row at `place` as it stands at `now`, in its place.
    fn age(
        &mut self,
        id: RecordId,
        place: u64,
        now: Timestamp,
        bytes: &mut usize,
    ) -> Result<Option<Swept>, redb::Error> {
        let record = {
            let row = self.rows.get(place)?;
            let row = row.as_ref().map(redb::AccessGuard::value);
            *bytes += row.map_or(0, <[u8]>::len);
            match read_row(id, row) {
                Ok(record) => record,
                Err(Corrupt) => return Ok(None),
            }
        };
        let open = record.state.is_open().then(|| Arc::new(record.clone()));
        let after = record.at(now).map(Arc::new);
        match &after {
            Some(record) => self.write(place, record)?,
            None => self.erase(place, None)?,
        }
        Ok(Some(Swept { id, place, open, after }))
    }
}
