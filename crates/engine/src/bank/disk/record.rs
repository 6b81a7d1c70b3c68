//! An entry on disk, as bytes of the index.
//!
//! Layout, all integers little endian:
//! ```text
//! weights, plan, state    each u32 length, then UTF-8: the numeric identity
//! tenant                  32 bytes, SHA-256 of the salt
//! tokens                  u64, then a u32 each
//! blobs                   u32 count, then each 32 bytes SHA-256, u64 length
//! checksum                32 bytes, SHA-256 of all before
//! ```

use sha2::{Digest as _, Sha256};

use crate::bank::BankIdentity;
use crate::bank::ids::Ids;
use crate::bank::memory::Tenant;

/// SHA-256 of a blob, or of what makes an entry another entry.
pub(crate) type Digest = [u8; 32];

/// A file of the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blob {
    pub digest: Digest,
    pub bytes: u64,
}

/// An entry on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub identity: BankIdentity,
    pub tenant: Tenant,
    pub ids: Ids,
    /// One per 256 tokens.
    pub blobs: Vec<Blob>,
}

impl Record {
    /// The same for entries that replace each other.
    pub(crate) fn id(&self) -> Digest {
        let mut hash = Sha256::new();
        for text in [&self.identity.weights, &self.identity.plan, &self.identity.state] {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        }
        hash.update(self.tenant);
        self.ids.iter().for_each(|id| hash.update(id.to_le_bytes()));
        hash.finalize().into()
    }

    /// Bytes that it takes beside its blobs.
    pub(crate) fn bytes(&self) -> u64 {
        (self.ids.len() * 4 + self.blobs.len() * 40) as u64
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for text in [&self.identity.weights, &self.identity.plan, &self.identity.state] {
            out.extend_from_slice(&(text.len() as u32).to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        }
        out.extend_from_slice(&self.tenant);
        out.extend_from_slice(&(self.ids.len() as u64).to_le_bytes());
        self.ids.iter().for_each(|id| out.extend_from_slice(&id.to_le_bytes()));
        out.extend_from_slice(&(self.blobs.len() as u32).to_le_bytes());
        for blob in &self.blobs {
            out.extend_from_slice(&blob.digest);
            out.extend_from_slice(&blob.bytes.to_le_bytes());
        }
        let checksum = Sha256::digest(&out);
        out.extend_from_slice(&checksum);
        out
    }

    /// Reads what [`Record::encode`] wrote; `None` where the bytes are damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, checksum) = bytes.split_last_chunk::<32>()?;
        if Sha256::digest(body).as_slice() != checksum {
            return None;
        }
        let mut reader = Reader(body);
        let (weights, plan, state) = (reader.text()?, reader.text()?, reader.text()?);
        let tenant = reader.array()?;
        let tokens = usize::try_from(u64::from_le_bytes(reader.array()?)).ok()?;
        let ids = reader.take(tokens.checked_mul(4)?)?;
        let ids: Vec<u32> = ids.as_chunks().0.iter().map(|id| u32::from_le_bytes(*id)).collect();
        let count = u32::from_le_bytes(reader.array()?);
        let mut blobs = Vec::new();
        for _ in 0..count {
            blobs.push(Blob { digest: reader.array()?, bytes: u64::from_le_bytes(reader.array()?) });
        }
        let identity = BankIdentity { weights, plan, state };
        let record = Self { identity, tenant, ids: Ids::new(&ids), blobs };
        (reader.0.is_empty() && tokens > 0 && record.blobs.len() == tokens.div_ceil(256)).then_some(record)
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn text(&mut self) -> Option<String> {
        let length = u32::from_le_bytes(self.array()?) as usize;
        String::from_utf8(self.take(length)?.to_vec()).ok()
    }
}
