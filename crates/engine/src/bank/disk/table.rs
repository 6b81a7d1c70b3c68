//! The index file: entries and when they were used, in a database that survives being killed.

use std::fs;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};

use super::record::{Digest, Record};
use crate::bank::BankError;

/// Version of the folder's layout.
pub(crate) const FORMAT: u32 = 1;

const META: TableDefinition<'_, &str, u32> = TableDefinition::new("meta");
const ENTRIES: TableDefinition<'_, &[u8; 32], &[u8]> = TableDefinition::new("entries");
/// Milliseconds since 1970.
const USED: TableDefinition<'_, &[u8; 32], u64> = TableDefinition::new("used");

/// Most bytes of the index kept in memory by the database; entries are read once, at opening.
const CACHE: usize = 16 << 20;

/// The index file.
#[derive(Debug)]
pub(crate) struct Table(Database);

/// What an index file held.
pub(crate) struct Content {
    pub records: Vec<(Digest, Record, u64)>,
    /// Entries whose bytes are damaged.
    pub damaged: Vec<Digest>,
    /// The file itself was damaged, and put aside.
    pub put_aside: bool,
}

/// Changes of the index that come true together.
#[derive(Debug, Default)]
pub(crate) struct Change {
    pub put: Vec<(Digest, Vec<u8>)>,
    pub used: Vec<(Digest, u64)>,
    pub removed: Vec<Digest>,
}

impl Change {
    pub(crate) fn is_empty(&self) -> bool {
        self.put.is_empty() && self.used.is_empty() && self.removed.is_empty()
    }
}

/// A failed opening.
enum Failure {
    Damaged,
    Told(BankError),
}

impl Table {
    /// Opens the index of a folder, or makes it. A damaged file is put aside as `index.redb.damaged`, and a new one
    /// begun.
    pub(crate) fn open(folder: &Path) -> Result<(Self, Content), BankError> {
        let path = folder.join("index.redb");
        match Self::try_open(folder, &path) {
            Ok(opened) => Ok(opened),
            Err(Failure::Told(error)) => Err(error),
            Err(Failure::Damaged) => {
                let aside = folder.join("index.redb.damaged");
                fs::rename(&path, &aside).map_err(|error| unusable(folder, &path, error))?;
                match Self::try_open(folder, &path) {
                    Ok((table, content)) => Ok((table, Content { put_aside: true, ..content })),
                    Err(Failure::Told(error)) => Err(error),
                    Err(Failure::Damaged) => Err(unusable(folder, &path, "a new index cannot be begun")),
                }
            }
        }
    }

    fn try_open(folder: &Path, path: &Path) -> Result<(Self, Content), Failure> {
        // The database checks what a crash can do to its file. What else can happen to a file may well make it panic,
        // which must end nothing but the opening.
        let opened = catch_unwind(AssertUnwindSafe(|| {
            let mut database = redb::Builder::new().set_cache_size(CACHE).create(path)?;
            // Every page against its checksum, before one is trusted.
            if database.check_integrity().is_err() {
                return Ok(None);
            }
            let content = read(&database)?;
            Ok::<_, redb::Error>(Some((Self(database), content)))
        }));
        match opened {
            Ok(Ok(Some((table, Ok(content))))) => Ok((table, content)),
            Ok(Ok(Some((_, Err(found))))) => {
                let folder = folder.to_owned();
                Err(Failure::Told(BankError::Format { folder, found: found.to_string(), expected: FORMAT }))
            }
            Ok(Ok(None)) | Err(_) => Err(Failure::Damaged),
            Ok(Err(error)) => Err(explain(folder, path, error)),
        }
    }

    /// Makes changes come true, all of them or none, and waits until the disk has them.
    pub(crate) fn commit(&self, change: &Change) -> Result<(), String> {
        catch_unwind(AssertUnwindSafe(|| self.try_commit(change).map_err(|error| error.to_string())))
            .unwrap_or_else(|_| Err("the index file is damaged".to_owned()))
    }

    fn try_commit(&self, change: &Change) -> Result<(), redb::Error> {
        let transaction = self.0.begin_write()?;
        {
            let mut entries = transaction.open_table(ENTRIES)?;
            let mut used = transaction.open_table(USED)?;
            for (id, record) in &change.put {
                entries.insert(id, record.as_slice())?;
            }
            for (id, time) in &change.used {
                used.insert(id, time)?;
            }
            for id in &change.removed {
                entries.remove(id)?;
                used.remove(id)?;
            }
        }
        transaction.commit()?;
        Ok(())
    }
}

/// Everything in the index, or the version that it has instead of [`FORMAT`].
fn read(database: &Database) -> Result<Result<Content, u32>, redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut meta = transaction.open_table(META)?;
        let found = meta.get("format")?.map(|found| found.value());
        match found {
            Some(FORMAT) => {}
            Some(found) => return Ok(Err(found)),
            None => {
                meta.insert("format", FORMAT)?;
            }
        }
        transaction.open_table(ENTRIES)?;
        transaction.open_table(USED)?;
    }
    transaction.commit()?;
    let transaction = database.begin_read()?;
    let (entries, used) = (transaction.open_table(ENTRIES)?, transaction.open_table(USED)?);
    let mut content = Content { records: Vec::new(), damaged: Vec::new(), put_aside: false };
    for entry in entries.iter()? {
        let (id, bytes) = entry?;
        let id = *id.value();
        match Record::decode(bytes.value()).filter(|record| record.id() == id) {
            Some(record) => {
                let time = used.get(&id)?.map_or(0, |time| time.value());
                content.records.push((id, record, time));
            }
            None => content.damaged.push(id),
        }
    }
    Ok(Ok(content))
}

fn explain(folder: &Path, path: &Path, error: redb::Error) -> Failure {
    match error {
        redb::Error::DatabaseAlreadyOpen => Failure::Told(BankError::InUse { folder: folder.to_owned() }),
        redb::Error::UpgradeRequired(version) => Failure::Told(BankError::Format {
            folder: folder.to_owned(),
            found: format!("of an index file of version {version}"),
            expected: FORMAT,
        }),
        redb::Error::TableTypeMismatch { .. } => Failure::Told(BankError::Format {
            folder: folder.to_owned(),
            found: "with other tables".to_owned(),
            expected: FORMAT,
        }),
        redb::Error::Io(error)
            if !matches!(
                error.kind(),
                ErrorKind::InvalidData | ErrorKind::UnexpectedEof | ErrorKind::InvalidInput
            ) =>
        {
            Failure::Told(unusable(folder, path, error))
        }
        _ => Failure::Damaged,
    }
}

pub(crate) fn unusable(folder: &Path, path: &Path, message: impl std::fmt::Display) -> BankError {
    BankError::Folder { folder: folder.to_owned(), path: PathBuf::from(path), message: message.to_string() }
}
